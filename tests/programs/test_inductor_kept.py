"""What a compiled forward pass keeps for the backward pass, by hand, and the minimum cut that it is chosen by."""

from __future__ import annotations

import itertools
import random

import pytest

from meshcast.programs.pytorch.inductor.kept_values import kept_results
from meshcast.programs.pytorch.inductor.minimum_cut import cut_nodes
from meshcast.programs.pytorch.inductor.pieces import Pieces
from meshcast.programs.pytorch.recording.calls import AtenOp
from tests.programs.recordings import call, dense, recording

HELD = {0: "input", 1: "parameter"}


def kept(*ops: AtenOp) -> set[int]:
    """Storages of the results that are kept."""
    pieces = Pieces(recording(*ops, held=HELD, returned=())).all
    numbers = kept_results(pieces)
    return {view.storage for piece in pieces if piece.number in numbers for view in piece.gives}


def test_cheap_results_are_computed_again_and_a_products_operand_is_kept() -> None:
    """`c = 2 relu(x w)`: backward loops have `relu(x w)` from `x w`, which they need anyway; a product has `c` written out."""
    x, w, a, b, c, d, g, h = (dense(i, 256, 256) for i in range(8))
    forward = call("mm", (x, w), (a,)), call("relu", (a,), (b,)), call("mul", (b,), (c,)), call("mm", (c, w), (d,))
    loops = call("threshold_backward", (g, a), (h,), phase="backward"), call("mul", (h, b), (g,), phase="backward")
    assert kept(*forward, *loops) == {2}
    assert kept(*forward, *loops, call("mm", (c, g), (h,), phase="backward")) == {2, 4}


def test_the_smaller_of_two_is_kept() -> None:
    """A mask of bytes instead of the numbers that it was made of; a product of halves instead of its copy in fp32."""
    x, w, a, g = dense(0, 256, 256), dense(1, 256, 256), dense(2, 256, 256), dense(9, 256, 256)
    mask = dense(3, 256, 256, dtype="bool")
    masked = call("gt", (a,), (mask,)), call("mul", (g, mask), (dense(4, 256, 256),), phase="backward")
    assert kept(call("mm", (x, w), (a,)), *masked) == {3}
    narrow = dense(5, 256, 256, dtype="bfloat16")
    wide = call("_to_copy", (narrow,), (a,)), call("mul", (g, a), (dense(4, 256, 256),), phase="backward")
    assert kept(call("mm", (x, w), (narrow,)), *wide) == {5}


def test_sums_and_random_masks_are_kept() -> None:
    x, w, a, total, spread = (dense(i, 256, 256) for i in (0, 1, 2, 3, 4))
    total = dense(3, 256)
    steps = call("mm", (x, w), (a,)), call("sum", (a,), (total,), dim=(-1,)), call("mul", (total,), (spread,))
    assert kept(*steps, call("mul", (spread, dense(9, 256, 256)), (dense(8, 256, 256),), phase="backward")) == {3}
    out, mask = dense(5, 256, 256), dense(6, 256, 256, dtype="bool")
    dropped = call("mm", (x, w), (a,)), call("native_dropout", (a,), (out, mask), p=0.1)
    backward = call("native_dropout_backward", (dense(9, 256, 256), mask), (dense(8, 256, 256),), phase="backward")
    assert kept(*dropped, backward) == {6}


def test_a_residuals_sum_is_not_computed_again() -> None:
    """`c = b + (b w) w`: what reads `b` again behind a product is not repeated, however cheap a sum is."""
    x, w, a, b, p, q, c = (dense(i, 256, 256) for i in range(7))
    forward = (
        call("mm", (x, w), (a,)), call("relu", (a,), (b,)), call("mm", (b, w), (p,)), call("mm", (p, w), (q,)),
        call("add", (b, q), (c,)),
    )  # fmt: skip
    assert kept(*forward, call("mul", (c, dense(9, 256, 256)), (dense(8, 256, 256),), phase="backward")) == {6}


def test_nothing_is_kept_without_a_backward_pass() -> None:
    x, w, a = (dense(i, 256, 256) for i in range(3))
    assert kept(call("mm", (x, w), (a,))) == set()


@pytest.mark.parametrize("seed", range(8))
def test_the_cut_is_the_cheapest_of_all(seed: int) -> None:
    """Against every set of nodes, on small graphs."""
    draw = random.Random(seed)
    nodes = range(7)
    weights = {node: draw.randint(1, 20) for node in nodes}
    edges = [(i, j) for i, j in itertools.combinations(nodes, 2) if draw.random() < 0.4]
    sources, sinks = [0, 1], [5, 6]

    def apart(cut: set[int]) -> bool:
        reached = {node for node in sources if node not in cut}
        for start, end in sorted(edges):
            if start in reached and end not in cut:
                reached.add(end)
        return not reached & set(sinks)

    found = cut_nodes(weights, edges, sources=sources, sinks=sinks)
    cuts = (set(each) for n in range(8) for each in itertools.combinations(nodes, n))
    assert apart(found)
    assert sum(weights[node] for node in found) == min(sum(weights[n] for n in cut) for cut in cuts if apart(cut))
