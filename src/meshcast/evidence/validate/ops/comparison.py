"""Measured ops predicted: a row for each, with the published SCALE-Sim TPU model beside ours on TPU v4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from meshcast.base import InputError, file_name, write_whole
from meshcast.estimate import FALLBACK, published_model
from meshcast.evidence.validate.ops import elementwise
from meshcast.evidence.validate.ops.programs import OpProgram, family, op_program
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.evidence.validate.programs import ProgramRow, in_processes, why_failed, why_untimed
from meshcast.hardware import resolve
from meshcast.jobs import Run, prepare
from meshcast.lower import LoopStep
from meshcast.options import Options, chosen_estimators
from meshcast.programs import from_bytes

SCALESIM = "scalesim-tpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpResult:
    """One row predicted, or why not; what peers say, in microseconds."""

    op: OpRow = field(repr=False)
    row: ProgramRow
    device: str | None = None
    steps: int = 1
    peers: Mapping[str, float] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The family that the row's op belongs to."""
        return family(self.op.op)

    def to_json(self) -> dict[str, Any]:
        """The contract's line of a row, and what it was."""
        op = self.op
        line = {
            **self.row.to_json(),
            "chip": op.chip,
            "op": op.op,
            "family": self.family,
            "grade": op.grade,
            "method": op.method,
            "dtype": op.stated_dtype,
            "shape": op.text,
            "device": self.device,
            "steps": self.steps,
        }
        return {**line, "peers": dict(self.peers)} if self.peers else line


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimedProgram:
    """A program's step in microseconds with its interval, or why there is none."""

    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    kernels: int = 0
    why: str | None = None


def validate_ops(rows: Sequence[OpRow], options: Options, *, jobs: int = 1) -> Iterator[OpResult]:
    """A result for each row, in order, as soon as it is known; equal programs are predicted once.

    Args:
        rows: What to predict, each on its own chip.
        options: The fidelity; `on` is overridden by every row.
        jobs: Processes to predict in; 1 stays in this one.

    Raises:
        MeshcastError: The options are wrong for every row, e.g. an unknown fidelity.
    """
    made: dict[str, OpProgram | str] = {}
    for row in rows:
        made[row.id] = _program(row) if row.time_us is not None else "unmeasured: no time_us"
    different = {(p.device, p.text): p for p in made.values() if isinstance(p, OpProgram)}
    for device in {device for device, _ in different}:
        chosen_estimators(options, resolve(device).device)  # a misspelt one is the caller's mistake, not every row's
    answers = in_processes(partial(_timed, options=options), list(different.values()), jobs)
    known: dict[tuple[str, str], _TimedProgram] = {}
    for row in rows:
        program = made[row.id]
        if isinstance(program, str):
            yield _result(row, None, _TimedProgram(why=program))
            continue
        key = (program.device, program.text)
        if key not in known:  # answers come in the order in which different programs first appear
            known[key] = next(answers)
        yield _result(row, program, known[key])


def _program(row: OpRow) -> OpProgram | str:
    try:
        return op_program(row)
    except Exception as error:  # this row's failure, or a bug: named in the row, so that the others are still judged
        return why_failed(error)


def op_run(program: OpProgram, options: Options) -> Run:
    """A row's program on its device, at the clock of the short runs in which such rows are measured.

    Raises:
        MeshcastError: It cannot be read or lowered.
    """
    captured = from_bytes(program.text.encode(), name=program.name, where=program.name)
    return prepare(captured, options.having(on=program.device, clocks="burst"))


def _timed(program: OpProgram, options: Options) -> _TimedProgram:
    try:
        run = op_run(program, options)
        prediction = run.predict()
    except Exception as error:  # named in the row like any other failure
        return _TimedProgram(why=why_failed(error))
    reason = why_untimed(prediction)
    if reason or not prediction.step_time_s:
        return _TimedProgram(why=reason)
    seconds = prediction.step_time_s
    low, high = prediction.interval_s or (seconds, seconds)
    scale = 1e6 / program.steps * (_looped(run) / seconds if program.slope else 1.0)
    return _TimedProgram(predicted=seconds * scale, low=low * scale, high=high * scale, kernels=prediction.kernels)


def _looped(run: Run) -> float:
    """Seconds in the program's own loops: what twice their trips would add; all of it where the compiler left none.

    Of a loop of n steps, `(T(2 n) - T(n)) / n` is a step's slope, as it was measured.
    """
    schedule = run.lowered.schedule
    steps = tuple(
        replace(step, trips=2 * step.trips) if isinstance(step, LoopStep) else step for step in schedule.steps
    )
    longer = replace(run, lowered=replace(run.lowered, schedule=replace(schedule, steps=steps)))
    return longer.timeline.duration - run.timeline.duration or run.timeline.duration


def _result(row: OpRow, program: OpProgram | None, timed: _TimedProgram) -> OpResult:
    peer = scalesim_us(row)
    return OpResult(
        op=row,
        row=ProgramRow(
            id=row.id,
            group=f"{row.chip}/{row.op}/{row.grade}",
            measured=row.time_us,
            predicted=timed.predicted,
            low=timed.low,
            high=timed.high,
            kernels=timed.kernels,
            why=timed.why,
        ),
        device=program.device if program else None,
        steps=program.steps if program else 1,
        peers={SCALESIM: peer} if peer is not None else {},
    )


def scalesim_us(row: OpRow) -> float | None:
    """What the published model says of a row as a whole op; None where it has no answer, or on another chip.

    It answers for ops, not for kernels: asked here by the row's own op and shape, so that nothing of our lowering is in it.
    """
    model = published_model()
    if row.generation != model.target:
        return None
    op = elementwise.ALIASES.get(row.op, row.op)
    name = {"logistic": "sigmoid"}.get(op, op)
    try:
        if op == "matmul":
            return model.products.microseconds(row.number("M"), row.number("N"), row.number("K"))
        if name in model.norms:
            return model.norm_us(name, model.counted_elements(row.dims()))
        if name in model.matrices or op in elementwise.UNARY or op in elementwise.BINARY:
            return model.elementwise_us(name if name in model.matrices else FALLBACK, row.dims())
    except InputError:
        return None  # the row itself fails for the same reason, and says so
    return None


def write_programs(rows: Sequence[OpRow], folder: Path) -> list[str]:
    """Writes every row's program to `folder/ID.mlir`; gives the ids of those that have none.

    Raises:
        UsageError: The folder cannot be written to.
        OutputError: The disk is full.
    """
    failed = []
    for row in rows:
        program = _program(row)
        if isinstance(program, str):
            failed.append(row.id)
        else:
            write_whole(folder / f"{file_name(row.id)}.mlir", program.text)
    return failed
