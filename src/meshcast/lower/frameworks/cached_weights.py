"""Weights that are made ready for their products once a step, where our programs do so for every microbatch.

Our training steps round weights to fp8 where a product takes them, in every pass of every microbatch: the largest value, the
scale, both orders. Transformer Engine does so in the first microbatch and keeps the result for the others
(`is_first_microbatch`; with `fp8_param_gather` the optimizer writes them so). Here what is made of weights alone goes from
passes of a microbatch: it is there. Weights that are gathered for every microbatch are stored rounded then, so that they travel
in 8 bits and are not rounded behind it (`fp8_param_gather` of Megatron-FSDP). What the one time takes, one in as many as there
are microbatches, is left out; the memory is that of the weights in 16 bits, which two orders of 8 bits stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshcast.lower.kernel import SCALAR_BYTES, BranchStep, Kernel, KernelKind, LoopStep, Schedule, Step
from meshcast.workload import Tensor, element_bytes

_FEW = 256  # of a tensor's bytes so many times fewer are numbers about it: its largest values by column, the largest of all
_MAKING = frozenset({KernelKind.LOOP_FUSION, KernelKind.REDUCTION, KernelKind.TRANSPOSE})


def with_cached_weights(schedule: Schedule, tensors: Sequence[Tensor], weights: set[int], *, is_pass: bool) -> Schedule:
    """The schedule without what microbatches after the first find made.

    Args:
        schedule: The schedule of a block.
        tensors: Types of all values.
        weights: Those of the block's inputs that are weights.
        is_pass: Whether the block runs for every microbatch; where it does not, loops that have loops inside do.
    """
    held = set(weights)
    steps: list[Step] = []
    for step in schedule.steps:
        if isinstance(step, LoopStep):
            inside = {value.before for value in step.carried if value.initial in held and value.unchanged}
            of_microbatches = any(isinstance(inner, LoopStep) for inner in step.body.steps)
            body = with_cached_weights(
                step.body, tensors, inside | held.intersection(step.reads), is_pass=is_pass or of_microbatches
            )
            steps.append(replace(step, body=body))
        elif isinstance(step, BranchStep) or not _of_weights_alone(step, held, tensors):
            steps.append(step)
        else:
            held.update(step.writes)
            # What collectives send is a share that is sent for every microbatch, and has to be made for it.
            if not is_pass or _is_sent(step, schedule.steps):
                steps.append(step)
    return replace(schedule, steps=tuple(_gathered_narrow(steps, tensors, held) if is_pass else steps))


def _gathered_narrow(steps: list[Step], tensors: Sequence[Tensor], held: set[int]) -> list[Step]:
    """The steps with weights gathered in the type that they are rounded to, where nobody reads them in another."""
    rounded: dict[int, Kernel] = {}  # by what is gathered, the one kernel that rounds it
    gone: set[int] = set()  # of the kernels that look for its largest value and round it
    for step in steps:
        if not isinstance(step, Kernel) or step.collective is None or step.collective.kind != "all_gather":
            continue
        if len(step.writes) != 1 or not held.issuperset(step.reads):
            continue
        readers = [each for each in steps if step.writes[0] in each.reads]
        makers = [
            each for each in readers if isinstance(each, Kernel) and _of_weights_alone(each, {*step.writes}, tensors)
        ]
        narrow = [
            each for each in makers if len(each.writes) == 1 and element_bytes(tensors[each.writes[0]].dtype) <= 1
        ]
        few = tensors[step.writes[0]].bytes / _FEW
        numbers = [each for each in makers if all(tensors[value].bytes <= few for value in each.writes)]
        if len(narrow) == 1 and len(narrow) + len(numbers) == len(readers):
            rounded[step.writes[0]] = narrow[0]
            gone.update(map(id, (*narrow, *numbers)))
    return [_narrowed(step, rounded, tensors) for step in steps if id(step) not in gone]


def _narrowed(step: Step, rounded: dict[int, Kernel], tensors: Sequence[Tensor]) -> Step:
    if not isinstance(step, Kernel) or step.collective is None or not step.writes or step.writes[0] not in rounded:
        return step
    wide, narrow = step.writes[0], rounded[step.writes[0]].writes[0]
    share = element_bytes(tensors[narrow].dtype) / element_bytes(tensors[wide].dtype)
    sizes = (int(step.collective.input_bytes * share), int(step.collective.output_bytes * share))
    collective = replace(step.collective, input_bytes=sizes[0], output_bytes=sizes[1])
    return replace(step, writes=(narrow,), geometry=collective)


def _of_weights_alone(kernel: Kernel, weights: set[int], tensors: Sequence[Tensor]) -> bool:
    large = [value for value in kernel.reads if tensors[value].bytes > SCALAR_BYTES]
    return bool(large) and kernel.kind in _MAKING and not kernel.updates and weights.issuperset(large)


def _is_sent(kernel: Kernel, steps: Sequence[Step]) -> bool:
    return any(
        isinstance(step, Kernel) and step.collective is not None and not set(kernel.writes).isdisjoint(step.reads)
        for step in steps
    )
