"""Copies of what loops carry: at their begin, where it is not theirs to overwrite, and at the end of turns that hand it on."""

from __future__ import annotations

import pytest

from meshcast.lower import Kernel, writes_over
from tests.lower.programs import loops, lower_text

T = "tensor<1024xf32>"
COPIED = 1024 * 4


def program(body: str, donated: bool = False, after: str = "%w#1, %w#2", start: str = "") -> str:
    marks = " {tf.aliasing_output = 0 : i32}" if donated else ""
    return f"""func.func public @main(%a: {T}{marks}, %b: {T}) -> ({T}, {T}) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      {start}
      %w:3 = stablehlo.while(%i = %zero, %x = {"%s" if start else "%a"}, %y = %b) : tensor<i32>, {T}, {T}
        cond {{
          %n = stablehlo.constant dense<3> : tensor<i32>
          %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          {body}
        }}
      return {after} : {T}, {T}
    }}"""


GROWS = f"%u = stablehlo.add %x, %y : {T}\n stablehlo.return %j, %u, %y : tensor<i32>, {T}, {T}"
SWAPS = f"%u = stablehlo.add %x, %y : {T}\n stablehlo.return %j, %y, %x : tensor<i32>, {T}, {T}"
# New values of both, each of both old ones: a bisection's ends.
NARROWS = f"""%s = stablehlo.add %x, %y : {T}
          %u = stablehlo.tanh %s : {T}
          %v = stablehlo.multiply %x, %y : {T}
          stablehlo.return %j, %u, %v : tensor<i32>, {T}, {T}"""
STARTED = f"%s = stablehlo.tanh %a : {T}"


def copies(text: str) -> tuple[int, int]:
    """Of whole arrays: around the loop, and in a turn."""
    lowered = lower_text(text)
    (loop,) = loops(lowered)
    around, inside = (
        [s for s in steps if isinstance(s, Kernel) and "copy" in s.flags and s.written_bytes == COPIED]
        for steps in (lowered.schedule.steps, loop.body.steps)
    )
    return len(around), len(inside)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (program(GROWS), (2, 0)),  # %b is handed on unchanged, and returned: an argument
        (program(GROWS, donated=True), (1, 0)),
        (program(GROWS, start=STARTED), (1, 0)),
        (program(GROWS, start=STARTED, after="%w#1, %s"), (1, 0)),  # read behind the loop
        (program(SWAPS), (2, 2)),
    ],
)
def test_loops_copy_what_they_may_not_overwrite(text: str, expected: tuple[int, int]) -> None:
    assert copies(text) == expected


def test_a_value_read_by_what_depends_on_its_successor_is_copied() -> None:
    """The new state is needed for a product that reads the old one too: both live, so that one is copied at the turn's end."""
    square = "tensor<32x32xf32>"
    body = f"""%u = stablehlo.tanh %x : {T}
          %p = stablehlo.reshape %u : ({T}) -> {square}
          %q = stablehlo.reshape %x : ({T}) -> {square}
          %r = stablehlo.dot_general %p, %q, contracting_dims = [1] x [0] : ({square}, {square}) -> {square}
          %v = stablehlo.reshape %r : ({square}) -> {T}
          stablehlo.return %j, %u, %v : tensor<i32>, {T}, {T}"""
    assert copies(program(body))[1] == 1


def test_a_kernel_that_renews_several_values_by_elements_writes_over_them() -> None:
    """As XLA 0.11.2 compiles it: one kernel of two results, and no copy."""
    (loop,) = loops(lower_text(program(NARROWS)))
    (kernel,) = [s for s in loop.body.steps if isinstance(s, Kernel) and s.written_bytes >= COPIED]
    assert len(kernel.writes) == 2
    assert all(writes_over(kernel, value, result) for value in kernel.reads for result in kernel.writes)


SEARCHES = f"""%s = stablehlo.add %x, %y : {T}
          %k = stablehlo.convert %s : ({T}) -> tensor<1024xi32>
          %r = stablehlo.reshape %k : (tensor<1024xi32>) -> tensor<1024x1xi32>
          %g = "stablehlo.gather"(%b, %r) {{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
            start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}} : ({T}, tensor<1024x1xi32>) -> {T}
          %p = stablehlo.compare LT, %g, %x, FLOAT : ({T}, {T}) -> tensor<1024xi1>
          %u = stablehlo.select %p, %x, %s : tensor<1024xi1>, {T}
          %v = stablehlo.select %p, %s, %y : tensor<1024xi1>, {T}
          stablehlo.return %j, %u, %v : tensor<i32>, {T}, {T}"""


def test_bounds_that_index_a_gather_are_copied_in_every_turn() -> None:
    """A binary search: one kernel moves both bounds and reads elsewhere by both (XLA 0.11.2: two copies a turn)."""
    assert copies(program(SEARCHES)) == (2, 2)
    assert copies(program(NARROWS))[1] == 0
