"""The questions of a comparison, asked one by one: what was answered before is reused, what fails spoils nothing else."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Unpack, assert_never

from meshcast.base import BugError, MeshcastError, UsageError, expect, nearest, piece
from meshcast.estimate import estimator_names, load_estimator
from meshcast.evidence.comparison.cell import Ask, Cell, predicted_cell, refused_cell
from meshcast.evidence.comparison.compared_targets import ComparedTargets, stated_hardware
from meshcast.evidence.comparison.comparison import Comparison, ladder_place
from meshcast.evidence.comparison.folder import RunFolder
from meshcast.evidence.comparison.keys import cell_key, traces_key
from meshcast.evidence.comparison.names import Hardware, Target, by_name, hardware_of, labels, names_of, once
from meshcast.evidence.comparison.variants import check_settings, variants_of
from meshcast.hardware import LIST_PRICE, Cluster, Price, check_priced, list_price, resolve
from meshcast.jobs import (
    Job,
    PipelineJob,
    ProgramJob,
    ServingJob,
    StatedSource,
    TraceJob,
    TraceSource,
    chosen_options,
    predict_job,
    resolve_job,
)
from meshcast.options import ManyKeywords, Options, common_fidelity, fidelity_names, why_not_taken
from meshcast.programs import Program
from meshcast.results import Prediction
from meshcast.zoo import AUTO

ALL_FIDELITIES = "all"
# Called with what is asked for next; what it returns is entered while the answer is worked out.
Told = Callable[[str], AbstractContextManager[None]]


def silent(_: str) -> AbstractContextManager[None]:
    """Tells nobody what is asked for next."""
    return nullcontext()


@dataclass(frozen=True, kw_only=True)
class ComparisonGrid:
    """What is compared: every target on every device in every fidelity.

    Attributes:
        targets: By the name that they are shown by.
        clusters: The hardware by the names that it is asked for by, each looked up once.
        given: By the same names what `Options.on` is: the name, or the object that was given.
        fidelities: Those that are asked, the coarsest first and those that are asked for by name last.
        named: Those that are asked for by name.
        options: What holds for all.
        prices: Of a device and hour, by the hardware's names, where there is one.
    """

    targets: ComparedTargets
    clusters: Mapping[str, Cluster]
    given: Mapping[str, Hardware]
    fidelities: tuple[str, ...]
    named: frozenset[str]
    options: Options
    prices: Mapping[str, Price]

    @property
    def on(self) -> tuple[str, ...]:
        """Names of the hardware."""
        return tuple(self.clusters)

    @cached_property
    def auto(self) -> str:
        """What `auto` stands for: of several devices the best that all have, so that none is timed by a finer one alone."""
        devices = [cluster.device for cluster in self.clusters.values()]
        return "auto" if len(devices) == 1 or self.options.estimate.profile is not None else common_fidelity(devices)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """All questions, by target, then device, then fidelity."""
        return tuple(
            Ask(target=t, on=d, fidelity=f) for t in self.targets.names for d in self.on for f in self.fidelities
        )

    def comparison(self, cells: Sequence[Cell]) -> Comparison:
        """The comparison that answers make, in whatever order they came."""
        by_ask = {cell.ask: cell for cell in cells}
        return Comparison(
            targets=self.targets.names,
            on=self.on,
            fidelities=self.fidelities,
            named=self.named,
            cells=tuple(by_ask[ask] for ask in self.asks if ask in by_ask),
            named_by={name: self.targets.named_by(name) for name in self.targets.names},
            tried={name: self.targets.variant(name).values for name in self.targets.names},
            prices=self.prices,
        )


def compare(
    targets: Target | Sequence[Target],
    *,
    on: Hardware | Sequence[Hardware] = (),
    fidelities: str | Sequence[str] = ALL_FIDELITIES,
    options: Options | None = None,
    folder: str | Path | None = None,
    told: Told = silent,
    tried: Sequence[str] = (),
    price: str | float | None = None,
    **overrides: Unpack[ManyKeywords],
) -> Comparison:
    """Targets side by side: `compare("step.mlir", on=["tpu-v5p", "h200"], fidelities=["roofline", "analytical"])`.

    Args:
        targets: Files, `module:function`, names of models, captured programs, or Chakra traces (a file, prefix, folder or
            manifest).
        on: Devices or clusters, as a list or with commas between them; a `Device` or `Cluster` is shown by its own name.
            Files of jobs name a cluster of their own, which is taken where none is given.
        fidelities: Their names likewise; `all` stands for every one there is.
        options: Settings that hold for all; `on` and `fidelity` are taken from above.
        folder: Where to keep answers, tables and plot; asked again, only what is new is worked out. None keeps nothing.
        told: Called with every question before it is asked, "3 of 24: ..."; what it returns is a context that is
            entered while the answer is worked out.
        tried: What is tried of every target, `["plan=fsdp=8;tp=8", "batch=16;32"]`: each combination is a target of its own.
        price: Dollars of a device and hour, or `list`; None: the catalogue's where it has one.
        **overrides: Single settings, by the field names of `Options`; `stack`, a software stack or its name, gives those
            that are left at their defaults.
    """
    chosen = chosen_options(options, overrides, where="compare", but=("on", "fidelity"))
    if not isinstance(targets, (str, Path, Program, list, tuple)):
        raise UsageError(
            f"targets are one target or a list of them, not {targets!r}",
            where="targets",
            fix="such as ['a.mlir', 'b.mlir']",
        )
    listed = list(targets) if isinstance(targets, (list, tuple)) else [targets]
    for each in listed:
        expect(each, (str, Path, Program), "a list of texts, paths or meshcast.Program", where="targets")
    expect(folder, (str, Path, type(None)), "a path or None", where="folder")
    if not callable(told):
        raise UsageError(
            f"told is a function of a text that returns a context, not {told!r}", where="told", fix="leave it out"
        )
    grid = comparison_plan(
        listed,
        on=hardware_of(on),
        fidelities=names_of(fidelities, "fidelities"),
        options=chosen,
        tried=names_of(tried, "tried") if not isinstance(tried, str) else [tried],
        price=price,
    )
    run_folder = RunFolder.opened(Path(folder)) if folder is not None else None
    comparison = grid.comparison(list(comparison_answers(grid, run_folder, told)))
    if run_folder is not None:
        run_folder.write(comparison)
    return comparison


def comparison_plan(
    targets: Sequence[Target], *, on: Sequence[Hardware], fidelities: Sequence[str], options: Options, tried: Sequence[str] = (),
    price: str | float | None = None,
) -> ComparisonGrid:  # fmt: skip
    """What to ask, with every mistake that does not depend on a single program found before anything is asked.

    Raises:
        UsageError: Something is missing or named twice, or there is no such fidelity or setting.
        UnsupportedError: No such device.
    """
    variants = variants_of(tried)
    compared = ComparedTargets(dict(zip(labels(targets), targets, strict=True)), variants)
    on = on or stated_hardware(compared)
    for what, given, flag in (("target", targets, ""), ("device", on, ": --on X,Y"), ("fidelity", fidelities, "")):
        if not given:
            raise UsageError(
                f"nothing to compare: no {what} is given", where="compare", fix=f"name at least one {what}{flag}"
            )
    once([each for each in on if isinstance(each, str)], "--on")
    hardware = by_name(on)
    known = fidelity_names()
    for name in once(fidelities, "--fidelity"):
        if name not in (ALL_FIDELITIES, "auto", *known):
            close = nearest(name, (ALL_FIDELITIES, "auto", *known))
            raise UsageError(f"no fidelity {name!r}", where="--fidelity", fix=close)
    named = [name for name in fidelities if name != ALL_FIDELITIES]
    options.check_choices()
    for each in variants:
        each.options(options).check_choices()
    check_settings(variants, targets, options)
    rest = _all_others(named, compared, options) if ALL_FIDELITIES in fidelities else ()
    clusters = {name: resolve(each) for name, each in hardware.items()}
    return ComparisonGrid(
        targets=compared,
        clusters=clusters,
        given=hardware,
        fidelities=(*rest, *named),
        named=frozenset(named),
        options=options.having(levers=False),
        prices=_prices(clusters, price),
    )


def _prices(clusters: Mapping[str, Cluster], price: str | float | None) -> dict[str, Price]:
    """What a device of each costs an hour: as asked for, else by the catalogue's list prices where it has one."""
    check_priced(price, [cluster.device for cluster in clusters.values()])
    found = {
        name: Price.of(LIST_PRICE if price is None else price, cluster.device)
        for name, cluster in clusters.items()
        if price is not None or list_price(cluster.device) is not None
    }
    return {name: each for name, each in found.items() if each is not None}


def _all_others(named: Sequence[str], targets: ComparedTargets, options: Options) -> tuple[str, ...]:
    """What `all` stands for beside the fidelities that are named: those that take the profile or simulator that is given.

    Raises:
        UsageError: None does.
    """
    # No fidelity has a part in what a trace recorded: `auto` shows that, beside the best of what is worked out elsewhere.
    every = {*fidelity_names(), *(("auto",) if targets.any_traces else ())} - set(named)
    found = {name: why_not_taken(options.estimate, name) for name in every}
    taken = [name for name, refused in found.items() if refused is None]
    if every and not taken and not named:
        raise UsageError(
            "no fidelity takes both a profile and a simulator",
            where="--profile, --simulator",
            fix="leave one of them out",
        )
    return tuple(sorted(taken, key=lambda name: (ladder_place(name), name)))


def comparison_answers(grid: ComparisonGrid, folder: RunFolder | None = None, told: Told = silent) -> Iterator[Cell]:
    """Every question's answer, coarse fidelities first: they take milliseconds, and an interrupted run has them all."""
    asks = sorted(grid.asks, key=lambda ask: grid.fidelities.index(ask.fidelity))
    for number, ask in enumerate(asks, 1):
        said = f"{number - 1} of {len(asks)} answered, now {ask}"
        with told(f"{number} of {len(asks)}: {ask}"), piece(said, done=number - 1, total=len(asks)):
            cell = _answer(ask, grid, folder)
        yield cell


def _answer(ask: Ask, grid: ComparisonGrid, folder: RunFolder | None) -> Cell:
    try:
        cluster = grid.clusters[ask.on]
        tried = grid.targets.variant(ask.target).options(grid.options)
        options = _attending_alike(tried.having(on=grid.given[ask.on], fidelity=ask.fidelity), cluster, grid)
        source = grid.targets.source(ask.target)
        if isinstance(source, StatedSource):
            # The file of a job names hardware of its own: that of the column goes before it.
            options = options.having(written=tuple(sorted({*options.written, "on"})))
        if isinstance(source, TraceSource):
            options = _of_traces(options)
        else:
            if grid.targets.any_traces:  # which durations are about
                options = options.having(durations="auto")
            if ask.fidelity == "auto":
                options = (options.of_many if len(grid.asks) > 1 else options).having(fidelity=grid.auto)
        match job := resolve_job(source, options, cluster=cluster):
            case TraceJob():
                return _kept_or_asked(
                    ask, traces_key(grid.targets.traces(ask.target, job), cluster, options), job, folder
                )
            case ServingJob():  # two programs, each of which a plan would share out
                return _asked(ask, job)
            case PipelineJob():  # of many programs, which may lie anywhere: nothing tells whether a kept answer still holds
                return _asked(ask, job)
            case ProgramJob():
                key = cell_key(job.program, cluster, job.options)
                return _kept_or_asked(ask, key, job, folder)
            case _:
                assert_never(job)
    except MeshcastError as error:  # the target cannot be read, on this platform or at all: nothing worth keeping
        return refused_cell(ask, error)
    except Exception as error:  # a bug of ours in one cell must not lose the others
        traceback.print_exc()
        return refused_cell(ask, BugError(f"{type(error).__name__}: {error}", where=str(ask)))


def _attending_alike(options: Options, cluster: Cluster, grid: ComparisonGrid) -> Options:
    """On a TPU the compiled fidelity has plain attention by default, and so have all that it is compared with there."""
    alike = options.program.attention == AUTO and cluster.device.kind == "tpu" and "compiled" in grid.fidelities
    return options.having(attention="plain") if alike else options


def _of_traces(options: Options) -> Options:
    """A fidelity that is named works durations out on every device, or its column would be of two kinds of numbers."""
    worked_out = options.run.durations == "auto" and options.estimate.fidelity != "auto"
    return options.having(durations="estimated") if worked_out else options


def _kept_or_asked(ask: Ask, key: str, job: Job, folder: RunFolder | None) -> Cell:
    """What an earlier run answered, else what is answered now, which is kept unless it failed."""
    found = folder.kept(key, ask) if folder is not None else None
    if found is not None:
        return found
    cell = _asked(ask, job)
    if folder is not None and cell.status != "failed":
        folder.keep(key, cell)
    return cell


def _asked(ask: Ask, job: Job) -> Cell:
    try:
        prediction = predict_job(job)
    except MeshcastError as error:
        return refused_cell(ask, error)
    return predicted_cell(ask, prediction, own=_is_own(ask.fidelity, prediction))


def _is_own(fidelity: str, prediction: Prediction) -> bool:
    """Whether most of a prediction's time is the asked fidelity's; `auto` takes what comes."""
    if not prediction.feasible or fidelity in ("auto", prediction.fidelity):
        return True
    # An estimator may be asked for by its name, and be one of several of its fidelity.
    return fidelity in estimator_names() and load_estimator(fidelity).fidelity == prediction.fidelity
