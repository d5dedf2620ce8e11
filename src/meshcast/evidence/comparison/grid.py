"""The questions of a comparison, asked one by one: what was answered before is reused, what fails spoils nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from meshcast.base import BugError, MeshcastError, UsageError, expect, nearest
from meshcast.estimate import estimator_names, load_estimator
from meshcast.evidence.comparison.cell import Ask, Cell, predicted_cell, refused_cell
from meshcast.evidence.comparison.comparison import Comparison, ladder_place
from meshcast.evidence.comparison.folder import RunFolder
from meshcast.evidence.comparison.keys import cell_key, traces_content, traces_key
from meshcast.hardware import resolve
from meshcast.jobs import (
    Pipeline,
    captured,
    chosen_options,
    find_traces,
    is_pipeline,
    names_traces,
    predict,
    resolved,
    serves,
)
from meshcast.options import Options, common_fidelity, fidelity_names
from meshcast.programs import STANDARD_INPUT, Program, program_name
from meshcast.results import Prediction
from meshcast.zoo import AUTO

ALL_FIDELITIES = "all"
Target = str | Path | Program
# Called with what is asked for next; what it returns is entered while the answer is worked out.
Told = Callable[[str], AbstractContextManager[None]]


def silent(_: str) -> AbstractContextManager[None]:
    """Tells nobody what is asked for next."""
    return nullcontext()


@dataclass(frozen=True, kw_only=True)
class ComparisonGrid:
    """What is compared: every target on every device in every fidelity."""

    targets: dict[str, Target]  # by the name that they are shown by
    on: tuple[str, ...]
    fidelities: tuple[str, ...]
    named: frozenset[str]
    options: Options

    @cached_property
    def auto(self) -> str:
        """What `auto` stands for: of several devices the best that all have, so that none is timed by a finer one alone."""
        devices = [resolve(name).device for name in self.on]
        return "auto" if len(devices) == 1 or self.options.estimate.profile is not None else common_fidelity(devices)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """All questions, by target, then device, then fidelity."""
        return tuple(Ask(target=t, on=d, fidelity=f) for t in self.targets for d in self.on for f in self.fidelities)

    def comparison(self, cells: Sequence[Cell]) -> Comparison:
        """The comparison that answers make, in whatever order they came."""
        by_ask = {cell.ask: cell for cell in cells}
        return Comparison(
            targets=tuple(self.targets),
            on=self.on,
            fidelities=self.fidelities,
            named=self.named,
            cells=tuple(by_ask[ask] for ask in self.asks if ask in by_ask),
        )


def compare(
    targets: Target | Sequence[Target],
    *,
    on: str | Sequence[str],
    fidelities: str | Sequence[str] = ALL_FIDELITIES,
    options: Options | None = None,
    folder: str | Path | None = None,
    told: Told = silent,
    **overrides: object,
) -> Comparison:
    """Targets side by side: `compare("step.mlir", on=["tpu-v5p", "h200"], fidelities=["roofline", "analytical"])`.

    Args:
        targets: Files, `module:function`, names of models, captured programs, or Chakra traces (a file, prefix, folder or
            manifest).
        on: Devices or clusters, as a list or with commas between them.
        fidelities: Their names likewise; `all` stands for every one there is.
        options: Settings that hold for all; `on` and `fidelity` are taken from above.
        folder: Where to keep answers, tables and plot; asked again, only what is new is worked out. None keeps nothing.
        told: Called with every question before it is asked, "3 of 24: ..."; what it returns is a context that is
            entered while the answer is worked out.
        **overrides: Single settings, by the field names of `Options`; `stack`, a software stack or its name, gives those
            that are left at their defaults.
    """
    chosen = chosen_options(options, overrides, where="compare", but=("on", "fidelity"))
    if not isinstance(targets, (str, Path, Program, list, tuple)):
        raise UsageError(f"targets are one target or a list of them, not {targets!r}", where="targets")
    listed = list(targets) if isinstance(targets, (list, tuple)) else [targets]
    for each in listed:
        expect(each, (str, Path, Program), "a list of texts, paths or meshcast.Program", where="targets")
    expect(folder, (str, Path, type(None)), "a path or None", where="folder")
    if not callable(told):
        raise UsageError(
            f"told is a function of a text that returns a context, not {told!r}", where="told", fix="leave it out"
        )
    grid = comparison_plan(listed, on=_names(on, "on"), fidelities=_names(fidelities, "fidelities"), options=chosen)
    run_folder = RunFolder.opened(Path(folder)) if folder is not None else None
    comparison = grid.comparison(list(comparison_answers(grid, run_folder, told)))
    if run_folder is not None:
        run_folder.write(comparison)
    return comparison


def comparison_plan(
    targets: Sequence[Target], *, on: Sequence[str], fidelities: Sequence[str], options: Options
) -> ComparisonGrid:
    """What to ask, with every mistake that does not depend on a single program found before anything is asked.

    Raises:
        UsageError: Something is missing or named twice, or there is no such fidelity or setting.
        UnsupportedError: No such device.
    """
    for what, given in (("target", targets), ("device", on), ("fidelity", fidelities)):
        if not given:
            raise UsageError(
                f"nothing to compare: no {what} is given", where="compare", fix=f"name at least one {what}"
            )
    for name in _once(on, "--on"):
        resolve(name)
    known = fidelity_names()
    for name in _once(fidelities, "--fidelity"):
        if name not in (ALL_FIDELITIES, "auto", *known):
            close = nearest(name, (ALL_FIDELITIES, "auto", *known))
            raise UsageError(f"no fidelity {name!r}", where="--fidelity", fix=close)
    named = [name for name in fidelities if name != ALL_FIDELITIES]
    # No fidelity has a part in what a trace recorded: `auto` shows that, beside the best of what is worked out elsewhere.
    every = {*known, "auto"} if any(map(names_traces, targets)) else set(known)
    rest = (
        sorted(every - set(named), key=lambda name: (ladder_place(name), name)) if ALL_FIDELITIES in fidelities else []
    )
    options.check_choices()
    return ComparisonGrid(
        targets=dict(zip(_labels(targets), targets, strict=True)),
        on=tuple(on),
        fidelities=(*rest, *named),
        named=frozenset(named),
        options=options.having(levers=False),
    )


def comparison_answers(grid: ComparisonGrid, folder: RunFolder | None = None, told: Told = silent) -> Iterator[Cell]:
    """Every question's answer, coarse fidelities first: they take milliseconds, and an interrupted run has them all."""
    programs = _Programs(grid)
    asks = sorted(grid.asks, key=lambda ask: grid.fidelities.index(ask.fidelity))
    for number, ask in enumerate(asks, 1):
        with told(f"{number} of {len(asks)}: {ask}"):
            cell = _answer(ask, grid, programs, folder)
        yield cell


def _answer(ask: Ask, grid: ComparisonGrid, programs: _Programs, folder: RunFolder | None) -> Cell:
    try:
        options = _attending_alike(grid.options.having(on=ask.on, fidelity=ask.fidelity), grid)
        if names_traces(grid.targets[ask.target]):  # before models: a manifest is a .json file as a configuration is
            options = _of_traces(options)
            key = traces_key(programs.traces(ask), resolve(ask.on), options)
            return _kept_or_asked(ask, key, grid.targets[ask.target], options, folder)
        options = options.having(fidelity=grid.auto if ask.fidelity == "auto" else ask.fidelity)
        if serves(grid.targets[ask.target], options):  # two programs, each of which a plan would share out
            return _asked(ask, grid.targets[ask.target], options)
        target, options = resolved(grid.targets[ask.target], options)
        if is_pipeline(
            target
        ):  # of many programs, which may lie anywhere: nothing tells whether a kept answer still holds
            return _asked(ask, target, options)
        program = programs.get(ask, target, options)
        key = cell_key(program, resolve(ask.on), options)
        # Sizes and settings are in the program already, which would refuse to be given them again.
        return _kept_or_asked(ask, key, program, options.having(dims={}, settings={}), folder)
    except MeshcastError as error:  # the target cannot be read, on this platform or at all: nothing worth keeping
        return refused_cell(ask, error)
    except Exception as error:  # a bug of ours in one cell must not lose the others
        traceback.print_exc()
        return refused_cell(ask, BugError(f"{type(error).__name__}: {error}", where=str(ask)))


def _attending_alike(options: Options, grid: ComparisonGrid) -> Options:
    """On a TPU the compiled fidelity has plain attention by default, and so have all that it is compared with there."""
    alike = (
        options.program.attention == AUTO and resolve(options.on).device.kind == "tpu" and "compiled" in grid.fidelities
    )
    return options.having(attention="plain") if alike else options


def _of_traces(options: Options) -> Options:
    """A fidelity that is named works durations out on every device, or its column would be of two kinds of numbers."""
    worked_out = options.run.durations == "auto" and options.estimate.fidelity != "auto"
    return options.having(durations="estimated") if worked_out else options


def _kept_or_asked(ask: Ask, key: str, target: Target, options: Options, folder: RunFolder | None) -> Cell:
    """What an earlier run answered, else what is answered now, which is kept unless it failed."""
    found = folder.kept(key, ask) if folder is not None else None
    if found is not None:
        return found
    cell = _asked(ask, target, options)
    if folder is not None and cell.status != "failed":
        folder.keep(key, cell)
    return cell


def _asked(ask: Ask, program: Program | Pipeline | str | Path, options: Options) -> Cell:
    try:
        prediction = predict(program, options)
    except MeshcastError as error:
        return refused_cell(ask, error)
    return predicted_cell(ask, prediction, own=_is_own(ask.fidelity, prediction))


def _is_own(fidelity: str, prediction: Prediction) -> bool:
    """Whether most of a prediction's time is the asked fidelity's; `auto` takes what comes."""
    if not prediction.feasible or fidelity in ("auto", prediction.fidelity):
        return True
    # An estimator may be asked for by its name, and be one of several of its fidelity.
    return fidelity in estimator_names() and load_estimator(fidelity).fidelity == prediction.fidelity


class _Programs:
    """Each target captured once a platform, and traces read once: that takes longer than most predictions."""

    def __init__(self, grid: ComparisonGrid) -> None:
        self._grid = grid
        self._found: dict[tuple[str, str, str | None], Program] = {}
        self._traces: dict[str, str] = {}

    def get(self, ask: Ask, target: Target, options: Options) -> Program:
        """The program of a target that is resolved for a device; devices of a platform may attend differently."""
        device = resolve(ask.on).device
        if isinstance(target, Program):  # captured already
            return captured(target, options, device)[0]
        # Standard input can be read once, and what it holds is lowered already.
        platform = "any" if target == STANDARD_INPUT else device.platform
        key = (ask.target, platform, options.program.settings.get("attention"))
        if key not in self._found:
            self._found[key] = captured(target, options, device)[0]
        return self._found[key]

    def traces(self, ask: Ask) -> str:
        """What the files of a job's traces hold, as a hash."""
        if ask.target not in self._traces:
            self._traces[ask.target] = traces_content(find_traces(str(self._grid.targets[ask.target])))
        return self._traces[ask.target]


def _labels(targets: Sequence[Target]) -> list[str]:
    """Short names of targets; where two would be the same, what was asked for in full."""
    short = [_label(target) for target in targets]
    full = [target.name if isinstance(target, Program) else str(target) for target in targets]
    labels = [long if short.count(name) > 1 else name for name, long in zip(short, full, strict=True)]
    return list(_once(labels, "TARGET"))


def _label(target: Target) -> str:
    if isinstance(target, Program):
        return target.name
    return program_name(Path(target)) if Path(target).is_file() else str(target)


def _once(names: Sequence[str], where: str) -> Sequence[str]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice!r} is named twice", where=where, fix="name each once")
    return names


def _names(value: str | Sequence[str], option: str) -> list[str]:
    """Names as a list, or with commas between them.

    Raises:
        UsageError: It is neither.
    """
    expect(value, (str, list, tuple), "a text or a list of texts", where=option)
    for name in [value] if isinstance(value, str) else value:
        expect(name, str, "a text or a list of texts", where=option)
    if isinstance(value, str):
        return split_names(value)
    return list(value)


def split_names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]
