"""Measured programs predicted one by one: `validate programs`."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from meshcast.base import MeshcastError, safe_starts
from meshcast.estimate import ONE_OP_GROUPS, MeasuredProgram, idle_watts, is_fitted, settled_part
from meshcast.hardware import resolve
from meshcast.jobs import predict
from meshcast.options import Options, chosen_estimators
from meshcast.results import Prediction

T = TypeVar("T")
R = TypeVar("R")
UNIT = "us"
UNSETTLED = 0.25  # of the way to the clock that the power cap leaves: how far runs of a quarter of a second come
# Programs a worker takes at a time: large enough to hide the hand-over, small enough for rows to stream.
_CHUNK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A figure predicted and measured, in one unit."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Signed and relative: `predicted / measured - 1`."""
        return self.predicted / self.measured - 1

    @property
    def factor(self) -> float:
        """The factor by which the prediction is too high or too low, at least 1."""
        ratio = self.predicted / self.measured
        return max(ratio, 1 / ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRow:
    """One program: what was measured and predicted (microseconds), or why there is no prediction."""

    id: str
    group: str
    measured: float | None
    predicted: float | None
    low: float | None = None
    high: float | None = None
    kernels: int = 0
    memory: Pair | None = None  # bytes
    energy: Pair | None = None  # joules
    sustained: Pair | None = None  # microseconds of long runs
    why: str | None = None

    @property
    def time(self) -> Pair | None:
        """The times, or None for a row that failed."""
        if self.predicted is None or self.measured is None:
            return None
        return Pair(predicted=self.predicted, measured=self.measured)

    @property
    def within_interval(self) -> bool:
        """Whether the measured time lies in the predicted interval."""
        if self.measured is None or self.low is None or self.high is None:
            return False
        return self.low <= self.measured <= self.high

    @property
    def below_interval(self) -> bool:
        """Whether the program ran faster than the interval's lower end; at fidelity roofline, faster than the speed of light."""
        return self.measured is not None and self.low is not None and self.measured < self.low

    def to_json(self) -> dict[str, Any]:
        """The contract's line of a row."""
        time = self.time
        line: dict[str, Any] = {
            "id": self.id,
            "group": self.group,
            "measured": self.measured,
            "predicted": self.predicted,
            "unit": UNIT,
            "error": time.error if time else None,
        }
        if self.low is not None and self.high is not None:
            line["interval"] = [self.low, self.high]
        if self.memory is not None:
            line["memory_bytes"] = {"measured": self.memory.measured, "predicted": self.memory.predicted}
        if self.energy is not None:
            line["energy_j"] = {"measured": self.energy.measured, "predicted": self.energy.predicted}
        if self.sustained is not None:
            line["sustained_us"] = {"measured": self.sustained.measured, "predicted": self.sustained.predicted}
        if self.why is not None:
            line["why"] = self.why
        return line


def in_fit(row: ProgramRow) -> bool:
    """Whether a row is in the half that is fitted."""
    return is_fitted(row.id, whole_model=row.group not in ONE_OP_GROUPS)


def validate_programs(programs: Sequence[MeasuredProgram], options: Options, *, jobs: int = 1) -> Iterator[ProgramRow]:
    """A row for each program, in order, as soon as it is known.

    Args:
        programs: What to predict.
        options: Device and fidelity.
        jobs: Processes to predict in; 1 stays in this one.

    Raises:
        MeshcastError: the options are wrong for every program, e.g. an unknown device.
    """
    device = resolve(options.on).device
    idle = idle_watts(device)
    chosen_estimators(options, device)  # a misspelt one is the caller's mistake, not a failure of every row
    yield from in_processes(partial(validate_program, options=options, idle=idle), programs, jobs)


def in_processes(one: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """`one` of every item, in order, in so many processes; 1 stays in this one."""
    if jobs <= 1:
        yield from map(one, items)
        return
    # Not forked: the parent's MLIR and XLA threads would not survive it. Ctrl-C is for the parent to answer.
    with safe_starts():
        pool = ProcessPoolExecutor(
            jobs, mp_context=get_context("spawn"), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
        )
        found = pool.map(one, items, chunksize=_CHUNK)  # asks for all of them, and so starts all processes
    try:
        yield from found
    finally:
        pool.shutdown(cancel_futures=True)


def validate_program(program: MeasuredProgram, options: Options, idle: float) -> ProgramRow:
    """One program's row; whatever goes wrong with it is the row's `why`, so that the others are still judged.

    Args:
        program: What was measured.
        options: Device and fidelity.
        idle: Power of the idle device, in watts.
    """
    failed = partial(ProgramRow, id=program.id, group=program.group, measured=program.time_us, predicted=None)
    if program.time_us is None:
        return failed(why=f"unmeasured: no {program.time_name}")
    try:
        # Times were measured on short runs of a cool card, energies on long runs under the power cap. An average over half a
        # second lies between the two.
        told = options.having(indices=program.indices or options.program.indices)
        prediction = predict(program.path, told, clocks="burst")
        longer = program.energy or settled_part(program.averaged_s) > UNSETTLED
        long_run = predict(program.path, told, clocks="sustained") if longer else prediction
    except Exception as error:  # ours or a bug: named in the row, so that the others are still judged
        return failed(why=why_failed(error))
    reason = why_untimed(prediction)
    if reason:
        return failed(why=reason)
    return _row(program, prediction, long_run, idle)


def why_failed(error: Exception) -> str:
    """What a row says of an error: its kind, place and message; of a bug, where in our code it happened."""
    if isinstance(error, MeshcastError):
        return f"{error.code}: {error.where + ': ' if error.where else ''}{error.message}"
    return f"bug: {type(error).__name__}: {error} ({_place(error)})"


def why_untimed(prediction: Prediction) -> str | None:
    """Why a prediction has no time to compare, or None where it has one."""
    if prediction.infeasible is not None:
        gap = prediction.infeasible
        return f"infeasible: {gap.resource} {gap.demand:.4g} > {gap.bound:.4g}"
    return None if prediction.step_time_s else "no time: the program has no kernel that takes any"


def _row(program: MeasuredProgram, prediction: Prediction, long_run: Prediction, idle: float) -> ProgramRow:
    settled = settled_part(program.averaged_s) if long_run is not prediction else 0.0
    step, low, high = (
        (1 - settled) * short + settled * long for short, long in zip(_times(prediction), _times(long_run), strict=True)
    )
    # An average over a few runs that are waited for holds its share of the host's lead (`simulate.standstill`).
    lead = (prediction.lead_s or 0.0) / program.runs if program.runs and program.whole_model else 0.0
    joules = program.energy_j(idle)
    return ProgramRow(
        id=program.id,
        group=program.group,
        measured=program.time_us,
        predicted=(step + lead) * 1e6,
        low=(low + lead) * 1e6,
        high=(high + lead) * 1e6,
        kernels=prediction.kernels,
        memory=_pair(prediction.memory.peak, program.memory_bytes),
        energy=_pair(long_run.energy_j, joules),
        sustained=_pair((long_run.step_time_s or 0.0) * 1e6, program.sustained_us),
    )


def _times(prediction: Prediction) -> tuple[float, float, float]:
    """A prediction's step and the ends of its interval."""
    assert prediction.step_time_s is not None
    return prediction.step_time_s, *(prediction.interval_s or (prediction.step_time_s, prediction.step_time_s))


def _pair(predicted: float | None, measured: float | None) -> Pair | None:
    return Pair(predicted=predicted, measured=measured) if predicted and measured and measured > 0 else None


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
