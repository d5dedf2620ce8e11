"""The backward pass with what it computes again of the forward pass, as AOTAutograd hands it to Inductor; free of torch.

What is not kept stands in the backward graph a second time, before its first reader there
(`torch/_functorch/partitioners.py`, `reordering_to_mimic_autograd_engine`): Inductor fuses it, or gives it memory of its own, by
the rules for any loop. What only the backward pass wanted is gone from the forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count

from meshcast.programs.pytorch.inductor.pieces import LoopPiece
from meshcast.programs.pytorch.recording.calls import View

Read = tuple[LoopPiece | None, View]


def with_repeats(
    pieces: Sequence[LoopPiece], kept: Collection[int], *, returned: Collection[int] = ()
) -> tuple[list[LoopPiece], set[int]]:
    """The pieces in order, numbered anew, and the numbers of those that are kept.

    Args:
        pieces: A step's, whose numbers, readers and, behind the forward pass, reads are changed.
        kept: Numbers of the forward pieces whose results the backward pass reads from memory.
        returned: Storages that are there after the step.
    """
    repeats = _Repeats(pieces, kept)
    order: list[LoopPiece] = []
    for piece in pieces:
        if piece.phase != "forward":
            piece.reads = [repeats.stand_in(read, order) for read in piece.reads]
        order.append(piece)
    for piece in order:
        piece.users = []
    for piece in order:
        for maker, _ in piece.reads:
            if maker is not None:
                maker.users.append(piece)
    read_before = {piece.number for piece in pieces if piece.number in repeats.had_readers}
    keep = {id(piece) for piece in pieces if piece.number in kept}
    alive = [
        piece
        for piece in reversed(order)
        if id(piece) in keep
        or not _is_left_out(piece, returned, read_before if piece.phase == "forward" else frozenset())
    ]
    alive.reverse()
    for number, piece in enumerate(alive):
        piece.number = number
    return alive, {piece.number for piece in alive if id(piece) in keep}


def _is_left_out(piece: LoopPiece, returned: Collection[int], read_before: Collection[int]) -> bool:
    """Whether nobody reads a forward loop any more; its own makers then have one reader less."""
    if piece.kind != "loop" or piece.fixed or piece.number not in read_before or piece.users:
        return False
    if any(view.storage in returned for view in piece.gives):
        return False
    for maker, _ in piece.reads:
        if maker is not None:
            maker.users = [user for user in maker.users if user is not piece]
    return True


class _Repeats:
    """Forward pieces as they stand in the backward pass."""

    def __init__(self, pieces: Sequence[LoopPiece], kept: Collection[int]) -> None:
        self._kept = kept
        self._made: dict[int, LoopPiece] = {}
        self._storages: dict[tuple[int, int], int] = {}
        self._numbers = count(len(pieces))
        views = [view for piece in pieces for view in (*piece.gives, *(view for _, view in piece.reads))]
        self._next = count(1 + max((view.storage for view in views), default=0))
        self.had_readers = {piece.number for piece in pieces if piece.users}

    def stand_in(self, read: Read, order: list[LoopPiece]) -> Read:
        """What a backward piece reads instead; pieces that are made for it are added to the order."""
        maker, view = read
        if maker is None or not self._repeats(maker):
            return read
        if maker.number not in self._made:
            self._make(maker, order)
        return self._made[maker.number], self._renamed(maker, view)

    def _repeats(self, maker: LoopPiece) -> bool:
        return maker.phase == "forward" and maker.number not in self._kept and repeatable(maker)

    def _make(self, wanted: LoopPiece, order: list[LoopPiece]) -> None:
        """Makes a piece anew, and before it all that it reads and that is not kept; without recursion, for chains are long."""
        missing: dict[int, LoopPiece] = {}
        waiting = [wanted]
        while waiting:
            piece = waiting.pop()
            if piece.number not in missing and piece.number not in self._made:
                missing[piece.number] = piece
                waiting += [maker for maker, _ in piece.reads if maker is not None and self._repeats(maker)]
        for _, piece in sorted(missing.items()):
            reads = [self.stand_in(each, order) for each in piece.reads]
            gives = tuple(self._renamed(piece, each) for each in piece.gives)
            made = replace(piece, number=next(self._numbers), phase="backward", reads=reads, gives=gives, users=[])
            self._made[piece.number] = made
            order.append(made)

    def _renamed(self, maker: LoopPiece, view: View) -> View:
        key = maker.number, view.storage
        if key not in self._storages:
            self._storages[key] = next(self._next)
        return replace(view, storage=self._storages[key])


def repeatable(piece: LoopPiece) -> bool:
    """Whether a piece can be computed a second time: loops without random numbers."""
    return piece.kind == "loop" and not piece.fixed
