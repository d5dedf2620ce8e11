"""Activations rounded before they are gathered: shares, bytes, and what is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from meshcast.base.mesh import Group
from meshcast.lower import Kernel, KernelKind, Schedule
from meshcast.lower.frameworks.narrow_gathers import with_narrow_gathers
from meshcast.lower.value_types import ValueTypes
from meshcast.workload.graph import Collective, Reduction, Tensor
from tests.simulate.schedules import kernel, schedule

PARTS, ROWS, WIDTH = 4, 256, 1024
GROUP = Group(dims=((PARTS, 1),), axes=("tensor",))
OWN, GATHERED, LARGEST, SCALE, ROUNDED = range(5)
WHOLE_BYTES = 2 * ROWS * WIDTH


def values(narrow: str = "f8E4M3FN") -> ValueTypes:
    return ValueTypes(
        [
            Tensor((ROWS // PARTS, WIDTH), "bf16"), Tensor((ROWS, WIDTH), "bf16"), Tensor((), "f32"), Tensor((), "f32"),
            Tensor((ROWS, WIDTH), narrow),
        ]
    )  # fmt: skip


def gather(group: Group = GROUP) -> Kernel:
    geometry = Collective(
        kind="all_gather", group=group, input_bytes=WHOLE_BYTES // PARTS, output_bytes=WHOLE_BYTES
    )  # fmt: skip
    made = kernel([OWN], [GATHERED])
    return replace(made, kind=KernelKind("collective"), geometry=geometry, operand_bytes=(WHOLE_BYTES // PARTS,))


def rounding() -> Sequence[Kernel]:
    """The largest value, its scale, and the cast, as a program for all devices has them behind a gather."""
    largest = replace(
        kernel([GATHERED], [LARGEST]), kind=KernelKind.REDUCTION, geometry=Reduction(shape=(ROWS, WIDTH), dims=(0, 1)),
        read_bytes=WHOLE_BYTES, operand_bytes=(WHOLE_BYTES,), written_bytes=4, vector_flops=float(ROWS * WIDTH),
    )  # fmt: skip
    scale = replace(kernel([LARGEST], [SCALE]), operand_bytes=(4,))
    cast = replace(
        kernel([GATHERED, SCALE], [ROUNDED]), kind=KernelKind.LOOP_FUSION, read_bytes=WHOLE_BYTES + 4,
        operand_bytes=(WHOLE_BYTES, 4), written_bytes=WHOLE_BYTES // 2, elements=ROWS * WIDTH, shape=(ROWS, WIDTH),
    )  # fmt: skip
    return largest, scale, cast


def rewritten(steps: Sequence[Kernel], types: ValueTypes, outputs: Sequence[int] = (ROUNDED,)) -> Schedule:
    body = schedule(list(steps), (OWN,), tuple(outputs))
    return with_narrow_gathers(body, types, lambda group: group == GROUP)


def test_shares_are_rounded_and_gathered_in_one_byte() -> None:
    """A quarter of the passes over memory, an agreement on the scale, and half of the gather's bytes."""
    types = values()
    steps = [step for step in rewritten([gather(), *rounding()], types).steps if isinstance(step, Kernel)]
    kinds = [step.collective.kind if step.collective else step.kind.value for step in steps]
    assert kinds == ["reduction", "all_reduce", steps[2].kind.value, "loop-fusion", "all_gather"]
    largest, agreed, _, cast, sent = steps
    assert largest.read_bytes == WHOLE_BYTES // PARTS
    assert isinstance(largest.geometry, Reduction)
    assert largest.geometry.shape == (ROWS // PARTS, WIDTH)
    assert agreed.writes == (LARGEST,)
    assert (cast.read_bytes, cast.written_bytes) == (WHOLE_BYTES // PARTS + 4, WHOLE_BYTES // 2 // PARTS)
    assert sent.collective is not None
    assert (sent.collective.input_bytes, sent.collective.output_bytes) == (WHOLE_BYTES // 8, WHOLE_BYTES // 2)
    assert sent.writes == (ROUNDED,)
    assert OWN in largest.reads
    assert OWN in cast.reads


@pytest.mark.parametrize("case", ["another reader", "an output", "another group", "wide values"])
def test_what_is_needed_as_it_is_stays(case: str) -> None:
    """Gathers that something else reads, that leave the block, of other groups, or whose casts are no narrower."""
    types = values("bf16" if case == "wide values" else "f8E4M3FN")
    group = Group(dims=((PARTS, 1),), axes=("data",)) if case == "another group" else GROUP
    steps: list[Kernel] = [gather(group), *rounding()]
    if case == "another reader":
        other = types.new((ROWS, WIDTH), "bf16")
        steps.append(replace(kernel([GATHERED], [other]), operand_bytes=(WHOLE_BYTES,)))
    outputs = (ROUNDED, GATHERED) if case == "an output" else (ROUNDED,)
    assert list(rewritten(steps, types, outputs).steps) == steps
