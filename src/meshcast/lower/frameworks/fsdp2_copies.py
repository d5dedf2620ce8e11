"""What PyTorch's FSDP of single parameters (`fully_shard`, FSDP2) does around the collectives of a layer.

A layer's weights arrive in one buffer, shard by shard, and are copied out of it into arrays of their own before the layer runs;
its gradients are copied into one buffer in the type that they are reduced in, fp32 in torchtitan's recipes (`reduce_dtype`), and
that is what a reduce-scatter sends. Both copies stand on the compute stream (PyTorch, `torch/distributed/fsdp/_fully_shard`,
`foreach_all_gather_copy_out` and `foreach_reduce_scatter_copy_in`). FSDP of flat parameters has views instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.lower.copies.memsets_and_copies import copy_kernel
from meshcast.lower.kernel import BranchStep, Kernel, LoopStep, Schedule, Step
from meshcast.lower.schedule.step_dependencies import on_values
from meshcast.lower.value_types import ValueTypes
from meshcast.workload import element_bytes

# What a weight stays the same weight through: casts, slices of a stack and their counters.
_MOVING = frozenset(
    f"stablehlo.{name}"
    for name in ("convert", "dynamic_slice", "slice", "reshape", "constant", "compare", "add", "subtract", "select")
)
_REDUCED = "f32"


def with_unit_copies(schedule: Schedule, values: ValueTypes, weights: set[int]) -> Schedule:
    """The schedule with copies behind gathers of weights and before reductions of gradients, which are made in fp32.

    Args:
        schedule: The schedule of a block.
        values: Types of all values.
        weights: Those of the block's inputs that are weights.
    """
    held = set(weights)
    names: dict[int, int] = {}  # gathered -> copied out
    read = {value for step in schedule.steps for value in step.reads}.union(schedule.outputs)
    steps: list[Step] = []
    for original in schedule.steps:
        step = on_values(original, names) if not names.keys().isdisjoint(original.reads) else original
        if isinstance(step, LoopStep):
            carried = zip(step.reads, step.body.inputs, strict=False)
            inside = {before for given, before in carried if given in held} | held.intersection(step.reads)
            steps.append(replace(step, body=with_unit_copies(step.body, values, inside)))
        elif isinstance(step, BranchStep):
            steps.append(step)
        elif _gathers(step, held):
            steps += [step, *_copied_out(step, names, values)]
        elif _scatters(step) and read.isdisjoint(step.writes):
            steps += _copied_in(step, values)
        else:
            if _MOVING.issuperset(step.ops) and not held.isdisjoint(step.reads):
                held.update(step.writes)
            steps.append(step)
    return replace(schedule, steps=tuple(steps), outputs=tuple(names.get(value, value) for value in schedule.outputs))


def _gathers(kernel: Kernel, weights: set[int]) -> bool:
    collective = kernel.collective
    return collective is not None and collective.kind == "all_gather" and weights.issuperset(kernel.reads)


def _scatters(kernel: Kernel) -> bool:
    """Whether gradients are reduced into shares; what nobody reads in a layer is its gradients."""
    return kernel.collective is not None and kernel.collective.kind == "reduce_scatter"


def _copied_out(gather: Kernel, names: dict[int, int], values: ValueTypes) -> list[Step]:
    copies: list[Step] = []
    for value in gather.writes:
        kind = values.tensors[value]
        names[value] = values.new(kind.shape, kind.dtype)
        copies.append(copy_kernel(value, names[value], kind, gather.location))
    return copies


def _copied_in(scatter: Kernel, values: ValueTypes) -> list[Step]:
    """Gradients cast into a buffer, and the reduction of that."""
    assert scatter.collective is not None
    steps: list[Step] = []
    wide: dict[int, int] = {}
    for value in scatter.reads:
        kind = values.tensors[value]
        wide[value] = values.new(kind.shape, _REDUCED)
        copy = copy_kernel(value, wide[value], kind, scatter.location)
        steps.append(replace(copy, written_bytes=values.tensors[wide[value]].bytes, ops=("copy", "stablehlo.convert")))
    results = {value: values.new(values.tensors[value].shape, _REDUCED) for value in scatter.writes}
    return [*steps, _widened(scatter, wide | results, values)]


def _widened(scatter: Kernel, names: Mapping[int, int], values: ValueTypes) -> Kernel:
    """A copy of the reduction on wider values."""
    collective = scatter.collective
    assert collective is not None
    factor = element_bytes(_REDUCED) / element_bytes(scatter.dtype)
    renamed = on_values(scatter, names)
    assert isinstance(renamed, Kernel)
    return replace(
        renamed,
        dtype=_REDUCED,
        geometry=replace(
            collective,
            input_bytes=round(factor * collective.input_bytes),
            output_bytes=round(factor * collective.output_bytes),
        ),
        operand_bytes=tuple(values.tensors[value].bytes for value in renamed.reads),
        read_bytes=round(factor * scatter.read_bytes),
        written_bytes=round(factor * scatter.written_bytes),
    )
