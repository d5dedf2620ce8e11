"""Loops that compilers change before anything is fused: those of one turn, and constants that bodies read."""

from __future__ import annotations

import pytest

from meshcast.lower import LoopStep, LoweredProgram
from tests.lower.programs import kernels, loops, lower_text

T = "tensor<8192xf32>"


def program(turns: int, body: str, before: str = "", limit: str = "") -> str:
    """A loop over `%x`, whose body makes `%r`; `limit` takes the place of the constant turns."""
    return f"""func.func public @main(%a: {T}, %m: tensor<i32>) -> {T} {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      {before}
      %w:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, {T}
        cond {{
          %n = stablehlo.constant dense<{turns}> : tensor<i32>
          %c = stablehlo.compare LT, %i, {limit or "%n"}, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          {body}
          stablehlo.return %j, %r : tensor<i32>, {T}
        }}
      %s = stablehlo.negate %w#1 : {T}
      return %s : {T}
    }}"""


SINE = f"%r = stablehlo.sine %x : {T}"


def has_loop(lowered: LoweredProgram) -> bool:
    return any(isinstance(step, LoopStep) for step in lowered.schedule.steps)


def test_a_loop_of_one_turn_is_its_body() -> None:
    """One kernel: `-sin(a)`, and no copy of what the loop carries."""
    lowered = lower_text(program(1, SINE))
    (kernel,) = kernels(lowered)
    assert not has_loop(lowered)
    assert kernel.ops[-2:] == ("stablehlo.sine", "stablehlo.negate")


def test_a_loop_of_two_turns_stays() -> None:
    assert has_loop(lower_text(program(2, SINE)))


def test_a_loop_of_one_turn_in_one_is_inlined_too() -> None:
    inner = f"""%k:2 = stablehlo.while(%p = %i, %y = %x) : tensor<i32>, {T}
        cond {{
          %n2 = stablehlo.constant dense<1> : tensor<i32>
          %c2 = stablehlo.compare LT, %p, %n2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c2 : tensor<i1>
        }} do {{
          %one2 = stablehlo.constant dense<1> : tensor<i32>
          %q = stablehlo.add %p, %one2 : tensor<i32>
          %r2 = stablehlo.sine %y : {T}
          stablehlo.return %q, %r2 : tensor<i32>, {T}
        }}
      %r = stablehlo.abs %k#1 : {T}"""
    text = program(1, inner).replace("(%p = %i,", "(%p = %zero,")
    lowered = lower_text(text)
    assert not has_loop(lowered)
    assert len(kernels(lowered)) == 1


@pytest.mark.parametrize("computed", [False, True])
def test_constants_of_a_body_are_numbers_in_its_kernels(computed: bool) -> None:
    """What merging equal ops left outside is neither written there nor read in every turn."""
    before = f"""%two = stablehlo.constant dense<2.0> : tensor<f32>
      %t = stablehlo.broadcast_in_dim %two, dims = [] : (tensor<f32>) -> {T}
      %u = stablehlo.{"sqrt" if computed else "optimization_barrier"} %t : {T}"""
    factor = "%u" if computed else "%t"
    lowered = lower_text(program(3, f"%r = stablehlo.multiply %x, {factor} : {T}", before))
    (loop,) = loops(lowered)
    multiplying = [step for step in loop.body.steps if "stablehlo.multiply" in getattr(step, "ops", ())]
    assert [len(getattr(step, "reads", ())) for step in multiplying] == [1]  # `x` alone
    assert [kernel.ops for kernel in kernels(lowered) if "stablehlo.broadcast_in_dim" in kernel.ops] == []
