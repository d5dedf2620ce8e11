"""Permutations of two to five dimensions: head splits and merges, channels moved, tiles, patches."""

from __future__ import annotations

import math
from collections.abc import Iterator

from meshcast.evidence.calibrate.families.movement import build, draw_heads, draw_image
from meshcast.evidence.calibrate.probe import ProbeChoices, Settings

__all__ = ["build", "probes"]

COUNT = 90
MOST_ELEMENTS = 4e8


def probes() -> Iterator[Settings]:
    """The family's list."""
    draw = ProbeChoices("transpose/1")
    made = 0
    while made < COUNT:
        kind = draw.pick(("matrix", "heads", "heads", "image", "batch", "patches"))
        shape: tuple[int, ...]
        if kind == "matrix":
            shape = (
                draw.log_uniform(16, 2**17, draw.pick((1, 8, 64))),
                draw.log_uniform(16, 2**17, draw.pick((1, 64))),
            )
            order = "10"
        elif kind == "heads":
            shape, order = draw_heads(draw), draw.pick(("0213", "0213", "0231", "0132", "2013", "1023"))
        elif kind == "image":
            shape, order = draw_image(draw), draw.pick(("0312", "0231", "3012", "1230"))
        elif kind == "batch":
            shape = (draw.pick((2, 8, 64, 512)), draw.log_uniform(16, 4096, 8), draw.log_uniform(16, 4096, 8))
            order = draw.pick(("021", "102", "120", "210"))
        else:
            n, side, patch = draw.pick((1, 8, 32, 64)), draw.pick((7, 14, 16, 28)), draw.pick((2, 8, 16))
            shape, order = (n, side, patch, side, patch * draw.pick((3, 4, 64))), "01324"
        if not 1024 <= math.prod(shape) <= MOST_ELEMENTS:
            continue
        made += 1
        yield {
            "op": "transpose",
            "shape": "x".join(map(str, shape)),
            "dtype": draw.pick(("bfloat16", "bfloat16", "float32", "int8")),
            "order": "-".join(order),
        }
