"""What a compiled forward pass keeps for the backward pass, as AOTAutograd's partitioner chooses it; free of torch.

Between results that are not computed again and the backward pass the fewest bytes are kept: a minimum cut
(`torch/_functorch/partitioners.py`, `solve_min_cut`). Not computed again are

- calls of libraries, random numbers, and operators that are not in the partitioner's list;
- what a library's call or a pooling's gradient takes, since it would have to be written out again;
- what is four times smaller than what it is made of: sums;
- what reads a value again behind a library's call that read it before, such as a residual's sum.

A result weighs its bytes, 1.1 times as many for each step that it is away from the backward pass, and twice where nothing
but fused kernels reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshcast.programs.pytorch.eager.arithmetic import POINTWISE, plain_name
from meshcast.programs.pytorch.eager.sums import SUMS
from meshcast.programs.pytorch.inductor.minimum_cut import cut_nodes
from meshcast.programs.pytorch.inductor.pieces import LoopPiece

_SMALLER = 4  # times, that a result is than what it is made of, from which it is not computed again
_STEP, _STEPS = 1.1, 100  # a result's weight for each step away from the backward pass, and the most that count
# Operators of the partitioner's list beside elementwise ones: `get_default_op_list`.
_REPEATED = frozenset(["index", "gather", "repeat", "flip", "bias", *SUMS])
_PARTED = (
    "norm",
    "softmax",
    "nll_loss",
)  # in names of operators that reach the partitioner as sums and elementwise ones


def kept_results(pieces: Sequence[LoopPiece]) -> set[int]:
    """The numbers of the forward pieces whose results are kept."""
    forward = [piece for piece in pieces if piece.phase == "forward"]
    sinks = [piece.number for piece in forward if any(user.phase == "backward" for user in piece.users)]
    if not sinks:
        return set()
    away = _steps_away(forward)
    weights = {piece.number: _weight(piece, away[piece.number]) for piece in forward}
    edges = {(piece.number, user.number) for piece in forward for user in piece.users if user.phase == "forward"}
    fixed = {piece.number for piece in forward if not _repeatable(piece) or _needed_whole(piece) or _is_small(piece)}
    fixed |= _used_again(forward)
    return cut_nodes(weights, edges, sources=fixed, sinks=sinks)


def _repeatable(piece: LoopPiece) -> bool:
    """Whether the partitioner may have a result computed again."""
    if piece.kind == "library" or piece.fixed:
        return False
    name = plain_name(piece.name)
    return piece.aside or name in POINTWISE or name in _REPEATED or any(part in name for part in _PARTED)


def _fuses(piece: LoopPiece) -> bool:
    """Whether the partitioner takes a piece for one that is fused with its neighbours."""
    return piece.fixed or _repeatable(piece)


def _fused(piece: LoopPiece, user: LoopPiece) -> bool:
    """Whether it takes a result for one that never leaves the kernel of its reader; anything is written into a concatenation."""
    return plain_name(user.name) == "cat" or (_fuses(piece) and _fuses(user))


def _needed_whole(piece: LoopPiece) -> bool:
    """Whether an operator of the backward pass that is not fused with it takes it: a library's call, a pooling's gradient.

    Of what was pooled Inductor's kernel reads nothing, the offsets and the shape are enough. But the partitioner goes by the
    operands of `max_pool2d_with_indices_backward`, which is not among its fused operators, and has it kept all the same
    (`is_materialized_backwards`).
    """
    return any(user.phase == "backward" and not _fused(piece, user) for user in piece.users)


def _is_small(piece: LoopPiece) -> bool:
    return _SMALLER * piece.bytes < sum(view.bytes for _, view in piece.reads)


def _weight(piece: LoopPiece, steps: int) -> int:
    bytes_ = int(piece.bytes * _STEP ** max(1, min(steps, _STEPS)))
    return bytes_ if not all(_fused(piece, user) for user in piece.users) else 2 * bytes_


def _steps_away(forward: Sequence[LoopPiece]) -> dict[int, int]:
    """Readers from each piece to the nearest one of the backward pass."""
    found: dict[int, int] = {}
    for piece in reversed(forward):
        steps = (0 if user.phase != "forward" else found[user.number] for user in piece.users)
        found[piece.number] = 1 + min(steps, default=_STEPS)
    return found


def _used_again(forward: Sequence[LoopPiece]) -> set[int]:
    """Pieces that read a value after a piece that cannot be fused with what read it first."""
    found: set[int] = set()
    for piece in forward:
        users = [user for user in piece.users if user.phase == "forward" and not user.aside]
        if len(users) < 2:
            continue
        last = max(user.number for user in users)
        first = _first_unfused(piece, users, last)
        found.update(user.number for user in users if user.number > first and _fused(piece, user))
    return found


def _first_unfused(piece: LoopPiece, users: Sequence[LoopPiece], last: int) -> int:
    """The first piece behind a value, up to its last reader, that is not fused with what it reads."""
    seen: set[int] = set()
    waiting = [(user, _fused(piece, user)) for user in users]
    first = last
    while waiting:
        user, fused = waiting.pop()
        if user.number in seen or user.number > first:
            continue
        if not fused:
            first = min(first, user.number)
            continue
        seen.add(user.number)
        waiting += [(each, _fused(user, each)) for each in user.users if each.phase == "forward"]
    return first
