"""A model of the machine against the real compiler of it, on the same programs: `validate compiled`.

Every program is predicted twice on one device: from our own kernels at a fidelity such as `analytical`, and at fidelity
`compiled`, whose time stands where other validations have a measurement. Nothing here was measured: the two may be wrong
together, which `validate ops` tells apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from meshcast.base import InputError
from meshcast.estimate import MeasuredProgram
from meshcast.evidence.validate.programs import Pair, ProgramRow, in_processes, why_failed, why_untimed
from meshcast.hardware import resolve
from meshcast.jobs import predict
from meshcast.options import Options, chosen_estimators
from meshcast.results import Prediction

COMPILED_KIND = "compiled"


def validate_compiled(
    programs: Sequence[MeasuredProgram], options: Options, *, kept: Path | None = None, jobs: int = 1
) -> Iterator[ProgramRow]:
    """A row for each program, in order: `predicted` at the options' fidelity, `measured` as compiled.

    Args:
        programs: What to predict; what was measured of them does not matter.
        options: Device and fidelity.
        kept: A folder of optimised HLO, ID.hlo[.gz], as the device's compiler gave it: no compiler is asked.
        jobs: Processes to predict in; 1 stays in this one.

    Raises:
        MeshcastError: the options are wrong for every program, e.g. an unknown device.
    """
    device = resolve(options.on).device
    chosen_estimators(options, device)
    yield from in_processes(partial(compare_program, options=options, kept=kept), programs, jobs)


def compare_program(program: MeasuredProgram, options: Options, kept: Path | None = None) -> ProgramRow:
    """One program's row; whatever goes wrong is the row's `why`."""
    failed = partial(ProgramRow, id=program.id, group=program.group, measured=None, predicted=None)
    told = options.having(indices=program.indices or options.program.indices, lowering="auto")
    try:
        source = program.path if kept is None else _kept(kept, program.id)
        # What the compiler writes for itself (assertions on indices, allocations) has no cost that a rule would know.
        compiled = predict(
            source, told.having(fidelity=COMPILED_KIND, approximate=kept is not None or told.program.approximate)
        )
        modelled = predict(program.path, told.having(lowering="modelled"))
    except Exception as error:  # ours or a bug: named in the row, so that the others are still judged
        return failed(why=why_failed(error))
    for name, prediction in ((COMPILED_KIND, compiled), (options.estimate.fidelity, modelled)):
        reason = why_untimed(prediction)
        if reason:
            return failed(why=f"{name}: {reason}")
    return _row(program, modelled, compiled)


def _row(program: MeasuredProgram, modelled: Prediction, compiled: Prediction) -> ProgramRow:
    assert modelled.step_time_s is not None
    assert compiled.step_time_s is not None
    low, high = modelled.interval_s or (modelled.step_time_s, modelled.step_time_s)
    return ProgramRow(
        id=program.id,
        group=program.group,
        measured=compiled.step_time_s * 1e6,
        predicted=modelled.step_time_s * 1e6,
        low=low * 1e6,
        high=high * 1e6,
        kernels=modelled.kernels,
        memory=Pair(predicted=modelled.memory.peak, measured=compiled.memory.peak) if compiled.memory.peak else None,
    )


def _kept(folder: Path, identifier: str) -> Path:
    for name in (f"{identifier}.hlo", f"{identifier}.hlo.gz"):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"no {identifier}.hlo or {identifier}.hlo.gz", where=str(folder))
