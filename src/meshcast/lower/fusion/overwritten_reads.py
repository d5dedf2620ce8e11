"""What may not be computed inside an update in place: whatever reads the array that is written meanwhile.

A kernel that writes a part of an array in place may read that array only where it writes, element by element
(instruction_fusion.cc, ShouldFuseInPlaceOp; gpu_fusible.cc, CanEmitInputFusedScatter). So of what reads an update's target, the
update may compute arithmetic, where nothing behind it takes elements elsewhere, and a single slice of the part that it writes,
where nothing else moves elements and no other update lies between. A layer's part of a stack of caches that is cut out, given a
row and put back is two updates: XLA:GPU writes the part down first.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.lower.fusion.candidates import FusionCandidate
from meshcast.lower.fusion.rules import IN_PLACE
from meshcast.workload import Op, OpKind, Tensor

# Names of ops as StableHLO and as HLO write them.
_UPDATES = ("dynamic_update_slice", "dynamic-update-slice")
_STATIC_SLICES = ("slice",)
_DYNAMIC_SLICES = ("dynamic_slice", "dynamic-slice")
_MOST_MOVING = 2  # ops that move elements: beyond one it does not matter how many
_STILL = frozenset({OpKind.ELEMENTWISE, OpKind.VIEW, OpKind.GENERATE})  # take elements where their own are


def note_target(kernel: FusionCandidate, op: Op, operands: Sequence[int]) -> None:
    """Notes of an op alone what it writes into, and whether it takes elements elsewhere than where its own are.

    Updates of slices are such to XLA wherever they end up, in place or inside their readers.
    """
    kernel.updates = int(op.name.rpartition(".")[2] in _UPDATES)
    kernel.target = operands[0] if op.cost.kind in IN_PLACE or kernel.updates else None
    kernel.moving = () if op.cost.kind in IN_PLACE or op.cost.kind in _STILL else (kernel.root,)


def take_in(kernel: FusionCandidate, into: FusionCandidate) -> None:
    """Notes in a reader what moves elements inside it once an op is there."""
    into.updates += kernel.updates
    if kernel.moving and len(into.moving) < _MOST_MOVING:
        into.moving = tuple(dict.fromkeys((*into.moving, *kernel.moving)))[:_MOST_MOVING]


def is_overwritten(
    kernel: FusionCandidate,
    value: int,
    into: FusionCandidate,
    ops: Sequence[Op],
    operands: Sequence[tuple[int, ...]],
    tensors: Sequence[Tensor],
) -> bool:
    """Whether an op would read an array while a reader that it is inside of writes it.

    Args:
        kernel: What would be inside.
        value: Its result.
        into: The reader.
        ops: A block's ops in order.
        operands: Theirs, views resolved.
        tensors: Types of all values.
    """
    if into.target is None or not (into.target == value or into.target in kernel.asked):
        return False
    root, moving = ops[into.root], kernel.moving
    if root.cost.kind is OpKind.SCATTER or into.updates > 1 or any(place != into.root for place in into.moving):
        return True
    if not moving:
        return False
    cut = moving[0]
    name = ops[cut].name.rpartition(".")[2]
    if len(moving) > 1 or name not in (*_STATIC_SLICES, *_DYNAMIC_SLICES):
        return True
    # As long as what is written: dimensions of one element come and go with views between.
    part, written = (tensors[value].shape for value in (ops[cut].results[0], root.operands[1]))
    if [size for size in part if size > 1] != [size for size in written if size > 1]:
        return True
    return name in _DYNAMIC_SLICES and operands[cut][1:] != operands[into.root][2:]
