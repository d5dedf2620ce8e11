"""Prefix sums as XLA:GPU takes them: of windows, of their sums likewise, and added back (reduce_window_rewriter.cc)."""

from __future__ import annotations

import math

SCANNED = 16  # elements of a window


def scan_levels(length: int) -> int:
    """Levels of windows above the first, until the sums of all fit one: 0 up to 16 elements, 1 up to 256, 2 up to 4,096."""
    levels = 0
    while length > SCANNED:
        length = math.ceil(length / SCANNED)
        levels += 1
    return levels
