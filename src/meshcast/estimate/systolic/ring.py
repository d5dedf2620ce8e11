"""The double-buffered read scratchpad: which words are in it is a window that turns over a ring.

SCALE-Sim writes the operand down once, in the order in which it expects words to be wanted, cuts that into groups of a
hundredth of the scratchpad, and keeps a window of them, half a scratchpad long. A word outside of the window moves the window
on by the other half, again and again until the word is inside, round the end of the operand to its beginning if need be;
there is no way back. Every move costs a refill. So misses depend on the order of words alone, never on time, and the walk can
be made once, over groups instead of words.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshcast.estimate.systolic.array import ArrayBuffer

GROUPS = 100  # that a scratchpad is cut into


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """An operand's groups of words, and the window over them.

    Attributes:
        group: Words in a group.
        groups: Groups of the operand; the last one may be empty.
        active: Groups in the window.
        step: Groups that the window moves on at a miss; 0 where all are inside.
    """

    group: int
    groups: int
    active: int
    step: int

    @classmethod
    def of(cls, buffer: ArrayBuffer, words: int) -> Ring:
        """The ring of an operand of that many words, counted as often as it is written down."""
        group = -(-buffer.words // GROUPS)
        groups = words // group + 1
        active = min(groups, -(-buffer.active // group))
        return cls(
            group=group, groups=groups, active=active, step=min(groups - active, -(-buffer.spare // group))
        )  # fmt: skip

    def moves(self, start: int, wanted: int) -> int:
        """How often a window that begins at `start` moves until the group `wanted` is inside; 0 where it is."""
        beyond = (wanted - start) % self.groups - self.active + 1
        return -(-beyond // self.step) if beyond > 0 else 0

    def moved(self, start: int, moves: int) -> int:
        """Where the window begins after so many moves."""
        return (start + moves * self.step) % self.groups
