"""A lowered program as `Overlap` asks for it; the rewrites are loaded where one is asked for, as most programs need none."""

from __future__ import annotations

from meshcast.lower.kernel import LoweredProgram
from meshcast.lower.overlap.choices import Overlap


def overlapped(lowered: LoweredProgram, overlap: Overlap) -> LoweredProgram:
    """The program with what is asked for, which hides communication behind compute as training frameworks do it."""
    if not overlap.any:
        return lowered
    from meshcast.lower.overlap.rewrites import rewritten

    return rewritten(lowered, overlap)
