"""StableHLO texts of any size, for `benchmarks/scaling.py` and for tests that count work."""

from __future__ import annotations

from collections.abc import Iterable

T, N = "tensor<64x64xf32>", "tensor<i32>"


def _main(arguments: Iterable[str], result: str, lines: Iterable[str]) -> str:
    taken = ", ".join(f"%{name}: {T}" for name in arguments)
    return "\n".join([f"func.func public @main({taken}) -> {T} {{", *lines, f"return %{result} : {T} }}"])


def _product(result: str, left: str, right: str) -> str:
    return f"%{result} = stablehlo.dot_general %{left}, %{right}, contracting_dims = [1] x [0] : ({T}, {T}) -> {T}"


def _sum(result: str, left: str, right: str) -> str:
    return f"%{result} = stablehlo.add %{left}, %{right} : {T}"


def chain(ops: int) -> str:
    """Products with one weight and additions, each of the one before."""
    lines, last = [], "x"
    for i in range(ops // 2):
        lines += [_product(f"d{i}", last, "w"), _sum(f"e{i}", f"d{i}", last)]
        last = f"e{i}"
    return _main(["x", "w"], last, lines)


def layers(ops: int) -> str:
    """Layers of three products of one value, of which the first is used before the last is computed, and one of those."""
    lines, last, count = [], "x", ops // 7
    for i in range(count):
        lines += [
            _product(f"q{i}", last, f"wq{i}"), f"%t{i} = stablehlo.tanh %q{i} : {T}", _product(f"k{i}", last, f"wk{i}"),
            f"%s{i} = stablehlo.multiply %t{i}, %k{i} : {T}", _product(f"v{i}", last, f"wv{i}"),
            _product(f"o{i}", f"s{i}", f"v{i}"), _sum(f"e{i}", f"o{i}", last),
        ]  # fmt: skip
        last = f"e{i}"
    return _main(["x", *(f"w{which}{i}" for i in range(count) for which in "qkv")], last, lines)


def independent(ops: int) -> str:
    """Products of arguments, and the sum of all of them."""
    count = ops // 3
    lines = []
    for i in range(count):
        lines += [_product(f"d{i}", f"w{i}", f"w{(7 * i + 1) % count}"), _sum(f"e{i}", f"d{i}", f"w{i}")]
    lines += [_sum(f"s{i}", f"s{i - 1}" if i > 1 else "e0", f"e{i}") for i in range(1, count)]
    return _main([f"w{i}" for i in range(count)], f"s{count - 1}", lines)


def shared(ops: int) -> str:
    """One value that all products read, and the sum of all of them."""
    count = ops // 2
    lines = [_product(f"d{i}", "x", f"w{i}") for i in range(count)]
    lines += [_sum(f"s{i}", f"s{i - 1}" if i > 1 else "d0", f"d{i}") for i in range(1, count)]
    return _main(["x", *(f"w{i}" for i in range(count))], f"s{count - 1}", lines)


def arguments(count: int) -> str:
    """As many arguments and results, of one function each."""
    taken = ", ".join(f"%a{i}: {T}" for i in range(count))
    types = ", ".join([T] * count)
    lines = [f"%e{i} = stablehlo.tanh %a{i} : {T}" for i in range(count)]
    results = ", ".join(f"%e{i}" for i in range(count))
    return "\n".join([f"func.func public @main({taken}) -> ({types}) {{", *lines, f"return {results} : {types} }}"])


def nested_loops(depth: int) -> str:
    """Loops of two turns in each other."""
    lines = [f"%{name} = stablehlo.constant dense<{value}> : {N}" for name, value in (("z", 0), ("one", 1), ("two", 2))]
    value = "x"
    for k in range(depth):
        lines.append(
            f"%w{k}:2 = stablehlo.while(%i{k} = %z, %x{k} = %{value}) : {N}, {T} cond {{\n"
            f"%c{k} = stablehlo.compare LT, %i{k}, %two : ({N}, {N}) -> tensor<i1>\n"
            f"stablehlo.return %c{k} : tensor<i1> }} do {{\n%n{k} = stablehlo.add %i{k}, %one : {N}"
        )
        value = f"x{k}"
    lines.append(f"%y = stablehlo.tanh %{value} : {T}")
    value = "y"
    for k in reversed(range(depth)):
        lines.append(f"stablehlo.return %n{k}, %{value} : {N}, {T} }}")
        value = f"w{k}#1"
    return _main(["x"], value, lines)


def nested_branches(depth: int) -> str:
    """Branches in each other."""
    lines = [
        f"%first = stablehlo.slice %x [0:1, 0:1] : ({T}) -> tensor<1x1xf32>",
        "%number = stablehlo.reshape %first : (tensor<1x1xf32>) -> tensor<f32>",
        f"%p = stablehlo.convert %number : (tensor<f32>) -> {N}",
    ]
    lines += [f'%c{k} = "stablehlo.case"(%p) ({{' for k in range(depth)]
    lines.append(f"%y = stablehlo.tanh %x : {T}")
    value = "y"
    for k in reversed(range(depth)):
        lines.append(
            f"stablehlo.return %{value} : {T} }}, {{\n%b{k} = stablehlo.exponential %x : {T}\n"
            f"stablehlo.return %b{k} : {T} }}) : ({N}) -> {T}"
        )
        value = f"c{k}"
    return _main(["x"], value, lines)


def calls(depth: int) -> str:
    """Functions that call each other twice: 2^depth additions."""
    kind = f"({T}) -> {T}"
    lines = [_main(["x"], "y", [f"%y = call @f{depth}(%x) : {kind}"])]
    for k in range(depth + 1):
        body = (
            [f"%a = call @f{k - 1}(%x) : {kind}", f"%y = call @f{k - 1}(%a) : {kind}"] if k else [_sum("y", "x", "x")]
        )
        lines.append(_main(["x"], "y", body).replace("public @main", f"private @f{k}"))
    return "\n".join(lines)
