"""What a block computes twice is computed once, as XLA's hlo_cse has it; barriers and bodies keep it apart."""

from __future__ import annotations

import pytest

from tests.lower.programs import kernels, lower_text, read_text

T = "tensor<1024x1024xf32>"
SUM = f"({T}, tensor<f32>) -> tensor<1024xf32>"


def program(body: str, results: str, types: str) -> str:
    return f"func.func public @main(%a: {T}, %b: {T}) -> ({types}) {{\n{body}\n  return {results} : {types}\n}}\n"


def product(name: str, left: str, right: str) -> str:
    return f"  %{name} = stablehlo.dot_general {left}, {right}, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}\n"


def summed(name: str, how: str) -> str:
    return (
        f"  %c{name} = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"  %{name} = stablehlo.reduce(%a init: %c{name}) applies stablehlo.{how} across dimensions = [1] : {SUM}\n"
    )


BOTH = f"  %2 = stablehlo.tanh %0 : {T}\n  %3 = stablehlo.sine %1 : {T}"
CHAINS = f"  %t = stablehlo.tanh %a : {T}\n  %u = stablehlo.tanh %a : {T}\n"
BARRIER = f"  %c = stablehlo.optimization_barrier %a : {T}\n"


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (product("0", "%a", "%b") + product("1", "%a", "%b"), 1),
        (product("0", "%a", "%b") + product("1", "%b", "%a"), 2),
        (CHAINS + product("0", "%t", "%b") + product("1", "%u", "%b"), 1),
        (BARRIER + product("0", "%a", "%b") + product("1", "%c", "%b"), 2),  # what it hands on is computed again
    ],
)
def test_equal_products_are_one(body: str, count: int) -> None:
    text = program(body + BOTH, "%2, %3", f"{T}, {T}")
    flops = [kernel.matrix_flops for kernel in kernels(lower_text(text))]
    assert sum(flops) == count * 2 * 1024**3


def test_bodies_and_attributes_tell_ops_apart() -> None:
    def equal(body: str) -> int:
        text = program(body, "%x, %y", "tensor<1024xf32>, tensor<1024xf32>")
        return sum(bool(op.equal) for op in read_text(text).body.ops if op.name == "stablehlo.reduce")

    assert equal(summed("x", "add") + summed("y", "add")) == 1
    assert equal(summed("x", "add") + summed("y", "maximum")) == 0
    row = "tensor<1024xf32>"
    halves = "".join(
        f"  %s{n} = stablehlo.slice %a [{n}:{n + 1}, 0:1024] : ({T}) -> tensor<1x1024xf32>\n"
        f"  %{name} = stablehlo.reshape %s{n} : (tensor<1x1024xf32>) -> {row}\n"
        for n, name in ((3, "x"), (4, "y"))
    )
    ops = read_text(program(halves, "%x, %y", f"{row}, {row}")).body.ops
    assert not any(op.equal for op in ops)


def test_a_loop_computes_again_what_is_known_outside() -> None:
    text = f"""func.func public @main(%a: {T}) -> ({T}, {T}) {{
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %t = stablehlo.tanh %a : {T}
      %w:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, {T}
        cond {{
          %n = stablehlo.constant dense<3> : tensor<i32>
          %c = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }} do {{
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          %u = stablehlo.tanh %a : {T}
          %y = stablehlo.add %x, %u : {T}
          stablehlo.return %j, %y : tensor<i32>, {T}
        }}
      return %t, %w#1 : {T}, {T}
    }}"""
    loop = next(op for op in read_text(text).body.ops if op.blocks)
    assert not any(op.equal for op in loop.blocks[0].ops)


def test_a_value_returned_twice_under_two_names_is_copied() -> None:
    text = program(f"  %0 = stablehlo.tanh %a : {T}\n  %1 = stablehlo.tanh %a : {T}", "%0, %1", f"{T}, {T}")
    made = kernels(lower_text(text))
    assert sorted("copy" in kernel.flags for kernel in made) == [False, True]


def test_functions_called_twice_alike_run_once() -> None:
    text = f"""func.func public @main(%a: {T}, %b: {T}) -> {T} {{
      %0 = call @f(%a, %b) : ({T}, {T}) -> {T}
      %1 = call @f(%a, %b) : ({T}, {T}) -> {T}
      %2 = stablehlo.add %0, %1 : {T}
      return %2 : {T}
    }}
    func.func private @f(%x: {T}, %y: {T}) -> {T} {{
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}
      return %0 : {T}
    }}"""
    assert sum(kernel.matrix_flops for kernel in kernels(lower_text(text))) == 2 * 1024**3
