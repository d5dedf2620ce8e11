"""The backward pass with what it computes again of the forward pass, as AOTAutograd hands it to Inductor; free of torch.

What is not kept stands in the backward graph a second time, before its first reader there
(`torch/_functorch/partitioners.py`, `reordering_to_mimic_autograd_engine`): Inductor fuses it, or gives it memory of its own, by
the rules for any loop. What only the backward pass wanted is gone from the forward pass.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import count

from meshcast.programs.pytorch.pieces import LoopPiece
from meshcast.programs.pytorch.recorded import View

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
        if maker is None or maker.phase != "forward" or maker.number in self._kept or not repeatable(maker):
            return read
        found = self._made.get(maker.number)
        if found is None:
            reads = [self.stand_in(each, order) for each in maker.reads]
            gives = tuple(self._renamed(maker, each) for each in maker.gives)
            found = replace(maker, number=next(self._numbers), phase="backward", reads=reads, gives=gives, users=[])
            self._made[maker.number] = found
            order.append(found)
        return found, self._renamed(maker, view)

    def _renamed(self, maker: LoopPiece, view: View) -> View:
        key = maker.number, view.storage
        if key not in self._storages:
            self._storages[key] = next(self._next)
        return replace(view, storage=self._storages[key])


def repeatable(piece: LoopPiece) -> bool:
    """Whether a piece can be computed a second time: loops without random numbers."""
    return piece.kind == "loop" and not piece.fixed
