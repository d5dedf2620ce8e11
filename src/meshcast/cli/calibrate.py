"""`meshcast calibrate`: measures a device, and lowers what was measured again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.base import file_name
from meshcast.cli import arguments as flags
from meshcast.cli.patience import INTERRUPTED, drawn_bar

if TYPE_CHECKING:
    from meshcast.evidence import CalibrationOutcome, CalibrationProgress, CalibrationRequest, Relowered

Step = Callable[[int, int, str], None]


def calibrate_command(
    profile: Annotated[bool, typer.Option("--profile", help="Measure the device that JAX finds.")] = False,
    relower: Annotated[
        Path | None, typer.Option("--relower", metavar="FILE", help="Put our kernels of today beside a profile's rows.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE.csv",
            help="Collect measured kernels of --on from a table of single ops (docs/calibration.md); no device is needed.",
        ),
    ] = None,
    systolic: Annotated[
        Path | None,
        typer.Option(
            "--systolic",
            metavar="FILE.csv",
            help="Fit lines from cycles of --on's systolic array to latency, for --simulator scalesim-tpu, to a table of "
            "measured products (columns m, k, n, time_us, or a table of ops); no device is needed.",
        ),
    ] = None,
    array: Annotated[
        str | None,
        typer.Option("--array", metavar="RxC", help="With --systolic: the array, where it is not that of --on."),
    ] = None,
    grade: Annotated[
        list[str] | None,
        typer.Option(
            "--grade", help="With --from or --systolic: rows of this grade; may be given again.  [default: A]"
        ),
    ] = None,
    torch_host: Annotated[
        bool,
        typer.Option("--torch-host", help="Measure how fast the host issues PyTorch's calls, for predict --host; 3 s."),
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Print the ids of the probes, in order, and leave.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="NAME.profile.jsonl.gz; goes on with it if it is there. With --from: NAME.kernels.npz; with --systolic: "
            "NAME.systolic.toml.",
        ),
    ] = None,
    on: Annotated[str | None, typer.Option("--on", metavar="NAME", help="What to call the device.")] = None,
    minutes: Annotated[float, typer.Option("--minutes", help="Stop measuring after this long.")] = 8.5,
    families: Annotated[str, typer.Option("--families", help="Only these, separated by commas.")] = "",
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first probes.", min=1)] = None,
    keep_hlo: Annotated[
        Path | None,
        typer.Option("--keep-hlo", metavar="DIR", help="Where to keep the optimized HLO; NAME.hlo beside the file."),
    ] = None,
    hlo: Annotated[
        Path | None, typer.Option("--hlo", metavar="DIR", help="With --relower: the folder of the optimized HLO.")
    ] = None,
    device_file: Annotated[
        Path | None,
        typer.Option("--device-file", metavar="FILE", help="Where to write a device that the catalogue lacks."),
    ] = None,
    json: flags.Json = False,
) -> None:
    """Measures the device that JAX finds, or reads others' measurements of one, for fidelity profiled.

    Ctrl-C leaves what is done in the file; the same command goes on from there.
    """
    from meshcast.base import UsageError
    from meshcast.evidence import probe_suite

    chosen = tuple(filter(None, (name.strip() for name in families.split(","))))
    if sum((profile, relower is not None, table is not None, systolic is not None, torch_host, listing)) != 1:
        raise UsageError(
            "say what to do",
            where="meshcast calibrate",
            fix="give one of --profile, --from FILE.csv, --systolic FILE.csv, --torch-host, --relower FILE and --list",
        )
    if grade and table is None and systolic is None:
        raise UsageError(
            "--grade is for --from and --systolic", where="--grade", fix="leave it out, or give --from FILE.csv"
        )
    if array is not None and systolic is None:
        raise UsageError("--array is for --systolic", where="--array", fix="leave it out, or give --systolic FILE.csv")
    if hlo is not None and relower is None:
        raise UsageError("--hlo is for --relower", where="--hlo", fix="--keep-hlo DIR says where to keep it")
    if listing:
        for item in probe_suite(chosen)[:limit]:
            typer.echo(item.id)
    elif torch_host:
        _pace(json)
    elif relower is not None:
        _relower(relower, hlo, json)
    elif table is not None:
        _collect(table, on, grade or ["A"], output, json)
    elif systolic is not None:
        from meshcast.cli.calibrate_systolic import fit_lines

        fit_lines(systolic, on, array, grade or ["A"], output, json)
    else:
        from meshcast.evidence import CalibrationRequest

        request = CalibrationRequest(
            out=output, minutes=minutes, families=chosen, limit=limit, name=on, keep_hlo=keep_hlo
        )
        _profile(request, device_file, json)


def _pace(json: bool) -> None:
    import importlib.util

    from meshcast.base import UnsupportedError
    from meshcast.cli.app import emit_json
    from meshcast.programs import additions, has_gpu, pace_of, pace_told

    if importlib.util.find_spec("torch") is None:
        raise UnsupportedError(
            "torch is not installed here",
            where="--torch-host",
            fix="install it (pip install torch) on the machine with the GPU, and run this there",
        )
    if not has_gpu():
        raise UnsupportedError(
            "torch finds no GPU here",
            where="--torch-host",
            fix="run it where the steps run; the file programs/pytorch/pace.py alone needs nothing but torch",
        )
    pace = pace_of(additions())
    if json:
        emit_json({"schema": "meshcast.host_pace/1", **asdict(pace), "host": pace.host})
    else:
        typer.echo(pace_told(pace))


def _profile(request: CalibrationRequest, device_file: Path | None, json: bool) -> None:
    from meshcast.cli.app import emit_json
    from meshcast.evidence import relower_file, run_request, write_device_file
    from meshcast.hardware import device_names

    with _progress("probes") as step:

        def listen(progress: CalibrationProgress) -> None:
            note = f"{progress.stage}, {progress.failed} failed" if progress.failed else progress.stage
            step(progress.done, progress.total, note)

        try:
            outcome = run_request(request, listen)
        except KeyboardInterrupt:
            print("meshcast: interrupted: what is done is kept, the same command goes on from there", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
    with _progress("lowered") as step:
        relowered = relower_file(outcome.path, lambda done, total: step(done, total, ""), request.keep_hlo)
    written = device_file
    if written is None and outcome.header.device not in device_names():
        written = outcome.path.parent / f"{file_name(outcome.header.device)}.toml"
    if written is not None:
        write_device_file(written, outcome.backend, outcome.header)
    if json:
        emit_json(_outcome_json(outcome, relowered, written))
        return
    typer.echo(outcome.text())
    if relowered.not_lowered:
        typer.echo(f"{relowered.not_lowered} of them could not be lowered; their rows say why")
    if written is not None:
        typer.echo(f"{written}: the device, as measured")


def _outcome_json(outcome: CalibrationOutcome, relowered: Relowered, device_file: Path | None) -> dict[str, object]:
    return {
        "schema": "meshcast.calibration/1",
        "file": str(outcome.path),
        "device": outcome.header.device,
        "rows": outcome.rows,
        "failed": outcome.failed,
        "by_clock": outcome.by_clock,
        "not_lowered": relowered.not_lowered,
        "paired": relowered.paired,
        "left": outcome.left,
        "device_file": str(device_file) if device_file else None,
    }


def _collect(table: Path, on: str | None, grades: list[str], output: Path | None, json: bool) -> None:
    from meshcast.base import UsageError
    from meshcast.cli.app import emit_json
    from meshcast.evidence import RowChoice, chosen_rows, kernels_of_table, read_op_rows
    from meshcast.hardware import resolve

    if on is None:
        raise UsageError("--from needs a device", where="--on", fix="name the device whose rows to take: --on tpu-v4")
    device = resolve(on).device
    rows = chosen_rows(read_op_rows(table), RowChoice(grades=grades))
    with _progress("rows") as step:
        found = kernels_of_table(rows, device, source=table.name, listen=lambda done, total: step(done, total, ""))
    path = output or Path(f"{file_name(device.name)}.kernels.npz")
    found.interpolator.save(path)
    families = {
        name: {"rows": len(family), "error": family.error} for name, family in found.interpolator.families.items()
    }
    unjudged = [name for name, family in families.items() if family["error"] is None]
    warnings = []
    if unjudged:
        warnings.append(
            f"too few rows to judge {', '.join(unjudged)} on shapes left out: times there are little more than the model's"
        )
    if json:
        emit_json(
            {
                "schema": "meshcast.calibration/1",
                "file": str(path),
                "device": device.name,
                "rows": found.rows,
                "warnings": warnings,
                "left_out": found.left_out,
                "families": families,
            }
        )
        return
    for name, family in families.items():
        error = "" if family["error"] is None else f"  {family['error']:6.1%} off on shapes left out"
        typer.echo(f"{family['rows']:6}  {name}{error}")
    for said in warnings:
        typer.echo(f"warning: {said}", err=True)
    typer.echo(f"{path}: measured kernels of {device.name} from {found.rows} rows of {table.name}")
    if found.left_out:
        name, why = next(iter(found.left_out.items()))
        typer.echo(f"{len(found.left_out)} rows could not be taken, such as {name}: {why}")


def _relower(path: Path, hlo: Path | None, json: bool) -> None:
    from meshcast.cli.app import emit_json
    from meshcast.evidence import relower_file

    with _progress("lowered") as step:
        found = relower_file(path, lambda done, total: step(done, total, ""), hlo)
    if json:
        emit_json({"schema": "meshcast.calibration/1", "file": str(path), **asdict(found)})
    else:
        typer.echo(
            f"{path}: {found.rows} rows, {found.not_lowered} could not be lowered, {found.paired} have times of kernels"
        )


@contextmanager
def _progress(what: str) -> Iterator[Step]:
    """A bar on stderr where a person is watching, else a line whenever the note changes and at every tenth."""
    if not sys.stderr.isatty():
        yield _lines(what)
        return
    with drawn_bar(what, "{task.fields[note]}") as bar:
        task = bar.add_task(what, total=None, note="")
        yield lambda done, total, note: bar.update(task, completed=done, total=total, note=note)


def _lines(what: str) -> Step:
    last = ("", -1)

    def step(done: int, total: int, note: str) -> None:
        nonlocal last
        now = (note, 10 * done // max(1, total))
        if now != last:
            print(f"{what}: {done}/{total} {note}".rstrip(), file=sys.stderr, flush=True)
            last = now

    return step
