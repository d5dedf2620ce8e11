"""Pieces put together into kernels, as Inductor's scheduler does it; free of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meshcast.programs.pytorch.inductor.pieces import LoopPiece
from meshcast.programs.pytorch.recording.calls import View

StoragePart = tuple[int, int, int]  # a storage, the place in it where a view begins, and its elements
Reads = Callable[[LoopPiece], Sequence[tuple[LoopPiece | None, View]]]
_MOST = 64  # pieces in one kernel (`max_fusion_size`)


@dataclass(slots=True, kw_only=True, eq=False)
class KernelGroup:
    """One kernel to be."""

    number: int
    pieces: list[LoopPiece]
    reads: list[tuple[LoopPiece | None, View]] = field(default_factory=list)
    behind: int = 0  # bits of the groups that it depends on, in any number of steps

    @property
    def kinds(self) -> set[str]:
        """Of its pieces."""
        return {piece.kind for piece in self.pieces}

    def fits(self, piece: LoopPiece) -> bool:
        """Whether a piece runs over as much as the group does."""
        if piece.kind == "library" or "library" in self.kinds or len(self.pieces) >= _MOST:
            return False
        wide = max(each.elements for each in self.pieces)
        sums = [each for each in self.pieces if each.kind != "loop"]
        if piece.phase != self.pieces[0].phase:
            return False
        if piece.stages or any(each.stages for each in sums):
            # What goes before a sum that is split is in its kernel; what comes after it is in another.
            return bool(sums) and piece.elements == wide and all(_alike(piece, each) for each in sums)
        if piece.kind != "loop":
            return piece.elements == wide and all(_alike(piece, each) for each in sums)
        return piece.elements == wide or bool(sums and piece.elements == sums[0].left)


def _alike(one: LoopPiece, other: LoopPiece) -> bool:
    """Whether two sums run over the same dimensions in the same way."""
    return one.kind == other.kind and one.left == other.left


def fused(pieces: Sequence[LoopPiece], reads: Reads) -> list[KernelGroup]:
    """Kernels in an order in which they can run."""
    groups: list[KernelGroup] = []
    of: dict[int, KernelGroup] = {}  # piece -> group
    readers: dict[StoragePart, list[KernelGroup]] = {}  # part of a storage -> groups that read it, the latest last
    drawn: dict[int, LoopPiece] = {}  # random numbers, which are drawn in the kernel that first reads them
    for piece in pieces:
        read = reads(piece)
        if piece.fixed and not read:
            drawn[piece.number] = piece
            continue
        makers = {
            of[maker.number].number: of[maker.number] for maker, _ in read if maker is not None and maker.number in of
        }
        behind = 0
        for group in makers.values():
            behind |= group.behind | 1 << group.number
        chosen = _chosen(piece, read, makers, readers)
        if chosen is None:
            chosen = KernelGroup(number=len(groups), pieces=[], behind=0)
            groups.append(chosen)
        for maker, _ in read:
            if maker is not None and (random := drawn.pop(maker.number, None)) is not None:
                own = chosen
                if random.phase != piece.phase:  # drawn where the forward pass needs nothing of it
                    own = KernelGroup(number=len(groups), pieces=[])
                    groups.append(own)
                    behind |= 1 << own.number
                _join(own, random, (), 0, groups)
                of[random.number] = own
        _join(chosen, piece, read, behind & ~(1 << chosen.number), groups)
        of[piece.number] = chosen
        for _, view in read:
            known = readers.setdefault(_part(view), [])
            if chosen not in known[-4:]:
                known.append(chosen)
    return _ordered(groups, of)


def _chosen(
    piece: LoopPiece,
    read: Sequence[tuple[LoopPiece | None, View]],
    makers: dict[int, KernelGroup],
    readers: dict[StoragePart, list[KernelGroup]],
) -> KernelGroup | None:
    """The group that a piece joins: of those that make what it reads, or read the same, the one with most bytes in common."""
    if piece.kind == "library":
        return None
    common: dict[int, tuple[int, KernelGroup]] = {}
    for maker, view in read:
        candidates = list(readers.get(_part(view), ())[-4:])
        if maker is not None and (own := makers.get(_number(maker, makers))) is not None:
            candidates.append(own)
        for group in candidates:
            before = common.get(group.number, (0, group))[0]
            common[group.number] = before + view.bytes, group
    for _, group in sorted(common.values(), key=lambda item: -item[0]):
        if not group.fits(piece) or (piece.windowed and group.number in makers):
            continue
        others = [other for number, other in makers.items() if number != group.number]
        if all(not other.behind >> group.number & 1 for other in others):
            return group
    return None


def _part(view: View) -> StoragePart:
    """What kernels must have in common of a storage to be one for it: the queries and keys of one tensor are read by two."""
    return view.storage, view.offset, view.elements


def _number(maker: LoopPiece, makers: dict[int, KernelGroup]) -> int:
    return next((number for number, group in makers.items() if maker in group.pieces), -1)


def _join(
    group: KernelGroup,
    piece: LoopPiece,
    read: Sequence[tuple[LoopPiece | None, View]],
    behind: int,
    groups: Sequence[KernelGroup],
) -> None:
    group.pieces.append(piece)
    known = {(maker.number if maker else -1, view.storage) for maker, view in group.reads}
    group.reads += [each for each in read if (each[0].number if each[0] else -1, each[1].storage) not in known]
    new = behind & ~group.behind
    if not new:
        return
    group.behind |= behind
    for other in groups:
        if other.behind >> group.number & 1:
            other.behind |= group.behind


def _ordered(groups: Sequence[KernelGroup], of: dict[int, KernelGroup]) -> list[KernelGroup]:
    """Groups, each after those that it reads from, else in the order of their last pieces."""
    done: set[int] = set()
    order: list[KernelGroup] = []
    for start in sorted(groups, key=lambda group: group.pieces[-1].number):
        waiting = [(start, False)]
        while waiting:
            group, ready = waiting.pop()
            if group.number in done:
                continue
            if ready:
                done.add(group.number)
                order.append(group)
                continue
            waiting.append((group, True))
            for maker, _ in group.reads:
                if (
                    maker is not None
                    and maker.number in of
                    and (before := of[maker.number]) is not group
                    and before.number not in done
                ):
                    waiting.append((before, False))
    return order
