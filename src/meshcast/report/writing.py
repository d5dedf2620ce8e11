"""`write_report`: a target, or a run folder, as one HTML file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from meshcast.base import (
    MeshcastError,
    UsageError,
    check_place,
    expect,
    format_bytes,
    piece,
    room_for_nesting,
    write_whole,
)
from meshcast.jobs import chosen_options, predict, predict_with_job
from meshcast.options import OptionKeywords, Options, check_fidelity, option_places
from meshcast.report.comparison_folder import is_comparison
from meshcast.report.contents import Kind, ReportData, folder_data, prediction_data
from meshcast.report.exploration import is_exploration
from meshcast.report.page import report_page
from meshcast.report.subject import subject_of
from meshcast.results import Prediction

MOST_BYTES = 8_000_000  # that mail takes; sections are bounded so that a file stays below


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportWritten:
    """A report that was written.

    Attributes:
        file: Where.
        size: Its bytes.
        sections: Names of its sections.
        prediction: What it is of; None of a run folder.
    """

    file: Path
    size: int
    sections: tuple[str, ...]
    prediction: Prediction | None = None

    def __str__(self) -> str:
        return f"{self.file}, {format_bytes(self.size)}: {', '.join(self.sections)}"

    def to_json(self) -> dict[str, Any]:
        """The object that `report --json` prints."""
        found = self.prediction
        return {
            "schema": "meshcast.report/1",
            "file": str(self.file),
            "bytes": self.size,
            "sections": list(self.sections),
            "feasible": found.feasible if found is not None else None,
            "step_time_s": found.step_time_s if found is not None else None,
        }


def folder_kind(target: Any) -> Kind | None:
    """What a run folder is of; None of any other target."""
    if not isinstance(target, (str, Path)):
        return None
    path = Path(target)
    try:
        if is_exploration(path):
            return "exploration"
        return "comparison" if path.exists() and is_comparison(path) else None
    except OSError:  # a name that is no path
        return None


def write_report(
    target: Any,
    out: str | Path,
    options: Options | None = None,
    *,
    fidelities: Sequence[str] = (),
    command: Sequence[str] = (),
    **overrides: Unpack[OptionKeywords],
) -> ReportWritten:
    """Writes how a target will run as one HTML file: `write_report("step.mlir", "report.html", on="h200")`.

    Args:
        target: Whatever `predict` takes, or a run folder of `explore` or `compare`.
        out: The file, which ends in .html.
        options: All settings of the prediction at once; what would help is tried unless `levers` says otherwise.
        fidelities: Others that the same is predicted in, to be compared.
        command: The command line that makes the report, which it tells; by default that of the same settings.
        **overrides: Single settings, by the field names of `Options`.

    Raises:
        UsageError: The file cannot be written, or settings are given for a run folder.
        InputError: The target cannot be read.
    """
    expect(out, (str, Path), "a file", where="out")
    place = Path(out)
    if place.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{place.name} is no HTML", where="-o", fix="let it end in .html")
    check_place(place, where=f"-o {place}")
    kind = folder_kind(target)
    prediction: Prediction | None = None
    with room_for_nesting():
        if kind is not None:
            data = folder_data(Path(target), kind)
        else:
            chosen = chosen_options(
                options, {"levers": True, **overrides} if options is None else overrides, where="report"
            )
            data, prediction = _predicted(
                target, chosen, fidelities, command or _command(target, chosen, fidelities, place)
            )
        text = report_page(data).encode()
    if len(text) > MOST_BYTES and data["traces"]:
        # Traces are what can be had otherwise.
        data["traces"] = [
            {**each, "data": "", "note": "left out: the file would be too large"} for each in data["traces"]
        ]
        text = report_page(data).encode()
    write_whole(place, text)
    return ReportWritten(file=place, size=len(text), sections=tuple(data["sections"]), prediction=prediction)


def _predicted(
    target: Any, options: Options, fidelities: Sequence[str], command: Sequence[str]
) -> tuple[ReportData, Prediction]:
    for name in fidelities:
        check_fidelity(name)  # a mistyped name, before anything is waited for
    pieces = len(fidelities) + 2  # the answer, those of other fidelities, and what is drawn of them
    with piece(f"1 of {pieces}", done=0, total=pieces):
        prediction, job = predict_with_job(target, options)
    others: list[tuple[str, Prediction | MeshcastError]] = []
    for number, name in enumerate(fidelities, 1):
        with piece(f"{number + 1} of {pieces}, {name}", done=number, total=pieces):
            try:
                others.append((name, predict(target, options.having(fidelity=name, levers=False, what_if=()))))
            except MeshcastError as error:
                others.append((name, error))
    with piece(f"{pieces} of {pieces}", done=pieces - 1, total=pieces):
        subject = subject_of(prediction, job, others=tuple(others), command=shlex.join(command))
        return prediction_data(subject), prediction


def _command(target: Any, options: Options, fidelities: Sequence[str], out: Path) -> list[str]:
    """The command that asks the same, as far as texts can."""
    named = str(target) if isinstance(target, (str, Path)) else "TARGET"
    words = ["meshcast", "report", named, "--on", str(getattr(options.on, "name", options.on))]
    if options.program.plan is not None:
        words += ["--plan", str(options.program.plan)]
    if options.devices is not None:
        words += ["--devices", str(options.devices)]
    if fidelities or options.estimate.fidelity != "auto":
        words += ["--fidelity", ",".join((options.estimate.fidelity, *fidelities))]
    for flag, value in _others_of_one_word(options):
        words += [flag] if value is True else [flag, str(value)]
    for name, value in options.program.settings.items():
        words += ["--set", f"{name}={value}"]
    return [*words, "-o", str(out)]


def _others_of_one_word(options: Options) -> Iterator[tuple[str, str | float | Path]]:
    """Flags of all other settings that are not as usual, where one text or number is all that a flag says."""
    for name, (part, field) in option_places().items():
        flags = field.declaration.flags
        if name in ("on", "devices", "plan", "fidelity", "settings", "levers") or len(flags) != 1:
            continue  # said above; and what would help is always tried
        value = getattr(options if part is None else getattr(options, part), field.attribute)
        if (
            field.declaration.from_flags is None
            and isinstance(value, (str, int, float, Path))
            and value != field.default()
        ):
            yield flags[0].flag, value
