"""The StableHLO function of one launch: storages in, shaped as the kernel sees them, storages out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshcast.programs.pytorch.launches.launch import Arithmetic, Launch
from meshcast.programs.pytorch.recording.calls import View

Typed = tuple[View, str, int]  # a view, and its storage's dtype and elements

_KINDS = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint8": "ui8", "bool": "i1", "complex64": "complex<f32>", "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2",
}  # fmt: skip
_BINARY = frozenset(
    ["add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder", "and", "or", "xor"]
)
_LOGICAL = frozenset({"and", "or", "xor", "not"})


def type_of(shape: Sequence[int], dtype: str) -> str:
    """A tensor type."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{_KINDS[dtype]}>"


class Body:
    """Builds the function of one launch."""

    def __init__(self, takes: Sequence[Typed], gives: Sequence[Typed]) -> None:
        self.takes, self.gives = takes, gives
        self.lines: list[str] = []
        self._count = 0

    def text(self, made: Made) -> str:
        """The function that returns values as storages, named `@NAME`."""
        returned = [self._stored(i, *made[min(i, len(made) - 1)]) for i in range(len(self.gives))]
        takes = ", ".join(f"%a{i}: {type_of((n,), dtype)}" for i, (_, dtype, n) in enumerate(self.takes))
        kinds = ", ".join(type_of((n,), dtype) for _, dtype, n in self.gives)
        lines = "\n".join(self.lines)
        return (
            f"  func.func private @NAME({takes}) -> ({kinds}) {{\n{lines}\n"
            f"    return {', '.join(returned)} : {kinds}\n  }}"
        )

    def op(self, text: str) -> str:
        """Adds an op; returns its value."""
        value = f"%{self._count}"
        self._count += 1
        self.lines.append(f"    {value} = {text}")
        return value

    def constant(self, dtype: str, shape: Sequence[int] = ()) -> str:
        """A constant of zeros."""
        zero = "false" if dtype == "bool" else "0" if dtype.startswith(("int", "uint")) else "0.0"
        value = self.op(f"stablehlo.constant dense<{zero}> : {type_of((), dtype)}")
        if not shape:
            return value
        return self.op(
            f"stablehlo.broadcast_in_dim {value}, dims = [] : ({type_of((), dtype)}) -> {type_of(shape, dtype)}"
        )

    def convert(self, value: str, shape: Sequence[int], dtype: str, to: str) -> str:
        """The value in another dtype."""
        return (
            value
            if dtype == to
            else self.op(f"stablehlo.convert {value} : ({type_of(shape, dtype)}) -> {type_of(shape, to)}")
        )

    def reshape(self, value: str, shape: Sequence[int], dtype: str, to: Sequence[int]) -> str:
        """The value in another shape."""
        if tuple(shape) == tuple(to):
            return value
        return self.op(f"stablehlo.reshape {value} : ({type_of(shape, dtype)}) -> {type_of(to, dtype)}")

    def shaped(self, index: int, shape: Sequence[int] | None = None) -> tuple[str, tuple[int, ...], str]:
        """A storage as the launch's view of it, stride 0 as dimensions of 1; or in a shape of as many elements."""
        view, dtype, elements = self.takes[index]
        wanted = (
            tuple(n if step else min(n, 1) for n, step in zip(view.shape, view.strides, strict=True))
            if shape is None
            else tuple(shape)
        )
        count = math.prod(wanted)
        value = f"%a{index}"
        if count > elements:  # elements that windows share
            wanted, count = (elements,), elements
        if count < elements:
            value = self.op(
                f"stablehlo.slice {value} [0:{count}] : ({type_of((elements,), dtype)}) -> {type_of((count,), dtype)}"
            )
        return self.reshape(value, (count,), dtype, wanted), wanted, dtype

    def spread(self, value: str, shape: Sequence[int], dtype: str, to: Sequence[int]) -> str:
        """The value over a larger shape: broadcast where its dimensions say so, else as many elements as are wanted."""
        if tuple(shape) == tuple(to):
            return value
        aligned = len(shape) <= len(to) and all(
            n in (1, m) for n, m in zip(reversed(shape), reversed(tuple(to)), strict=False)
        )
        if aligned:
            dims = ", ".join(map(str, range(len(to) - len(shape), len(to))))
            return self.op(
                f"stablehlo.broadcast_in_dim {value}, dims = [{dims}] : ({type_of(shape, dtype)}) -> {type_of(to, dtype)}"
            )
        have, want = math.prod(shape), math.prod(to)
        if have == want:
            return self.reshape(value, shape, dtype, to)
        flat = self.reshape(value, shape, dtype, (have,))
        if have > want:
            flat = self.op(
                f"stablehlo.slice {flat} [0:{want}] : ({type_of((have,), dtype)}) -> {type_of((want,), dtype)}"
            )
        elif want % have == 0:
            rows = want // have, have
            types = f"({type_of((have,), dtype)}) -> {type_of(rows, dtype)}"
            flat = self.op(f"stablehlo.broadcast_in_dim {flat}, dims = [1] : {types}")
            return self.reshape(flat, rows, dtype, to)
        else:
            zero = self.constant(dtype)
            types = f"({type_of((have,), dtype)}, {type_of((), dtype)}) -> {type_of((want,), dtype)}"
            flat = self.op(f"stablehlo.pad {flat}, {zero}, low = [0], high = [{want - have}], interior = [0] : {types}")
        return self.reshape(flat, (want,), dtype, to)

    def _stored(self, index: int, value: str, shape: Sequence[int], dtype: str) -> str:
        """A result as its storage: whole, or written into a part of what was there."""
        view, kind, elements = self.gives[index]
        value = self.convert(value, shape, dtype, kind)
        count = min(view.elements, elements) or 1
        value = (
            self.spread(value, shape, kind, (count,))
            if math.prod(shape) != count
            else self.reshape(value, shape, kind, (count,))
        )
        if count == elements:
            return value
        before = next((f"%a{i}" for i, each in enumerate(self.takes) if each[0].storage == view.storage), None)
        if before is None:
            return self.spread(value, (count,), kind, (elements,))
        at = self.constant("int32")
        types = (
            f"({type_of((elements,), kind)}, {type_of((count,), kind)}, tensor<i32>) -> {type_of((elements,), kind)}"
        )
        return self.op(f"stablehlo.dynamic_update_slice {before}, {value}, {at} : {types}")

    def chain(self, ops: Sequence[str], values: list[str], shape: Sequence[int], dtype: str) -> str:
        """Arithmetic on every element: operands are taken up one after the other."""
        kind = type_of(shape, dtype)
        value, waiting = values[0], values[1:]
        for op in ops:
            if op == "compare" or op == "select":
                other = waiting.pop(0) if waiting else value
                truth = self.op(
                    f"stablehlo.compare GT, {value}, {other} : ({kind}, {kind}) -> {type_of(shape, 'bool')}"
                )
                value = self.op(f"stablehlo.select {truth}, {value}, {other} : {type_of(shape, 'bool')}, {kind}")
            elif op == "erf":
                value = self.op(f"chlo.erf {value} : {kind} -> {kind}")
            elif op in _LOGICAL:
                continue
            elif op in _BINARY:
                other = waiting.pop(0) if waiting else value
                value = self.op(f"stablehlo.{op} {value}, {other} : {kind}")
            else:
                value = self.op(f"stablehlo.{op} {value} : {kind}")
        for other in waiting:
            value = self.op(f"stablehlo.add {value}, {other} : {kind}")
        return value

    def reduce(self, value: str, shape: Sequence[int], dims: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """Sums over dimensions, in fp32."""
        left = tuple(n for d, n in enumerate(shape) if d not in dims)
        zero = self.constant("float32")
        across = ", ".join(map(str, dims))
        types = f"({type_of(shape, 'float32')}, tensor<f32>) -> {type_of(left, 'float32')}"
        return self.op(
            f"stablehlo.reduce({value} init: {zero}) applies stablehlo.add across dimensions = [{across}] : {types}"
        ), left

    def back(self, value: str, left: Sequence[int], shape: Sequence[int], dims: Sequence[int]) -> str:
        """Sums beside every element that they were made of."""
        kept = ", ".join(str(d) for d in range(len(shape)) if d not in dims)
        return self.op(
            f"stablehlo.broadcast_in_dim {value}, dims = [{kept}] : ({type_of(left, 'float32')}) -> {type_of(shape, 'float32')}"
        )


Made = list[tuple[str, Sequence[int], str]]


def elementwise(body: Body, launch: Launch) -> Made:
    """Stages one after the other over the operands; sums go back beside the elements for the stages behind."""
    result = launch.gives[0]
    stages = launch.stages or (Arithmetic(),)
    shape = next((stage.shape for stage in stages if stage.shape), result.shape)
    if launch.told.get("list"):
        return _list(body, launch)
    if not stages[0].reduced and not any(stage.ops for stage in stages) and len(body.takes) == 1:
        return [_moved(body, launch, result)]
    read = {view.storage for view in launch.takes}
    values = []
    for i, (view, _, _) in enumerate(body.takes):
        if view.storage not in read:
            continue  # what is written into in part
        value, have, dtype = body.shaped(i)
        values.append(body.spread(body.convert(value, have, dtype, "float32"), have, "float32", shape))
    made: Made = []
    waiting = values or [body.constant("float32", shape)]
    for position, stage in enumerate(stages):
        value = body.chain(stage.ops, waiting, shape, "float32")
        waiting = [value]
        if stage.reduced:
            total, left = body.reduce(value, shape, stage.reduced)
            made.append((total, left, "float32"))
            if position + 1 < len(stages):
                beside = body.back(total, left, shape, stage.reduced)
                waiting = [body.op(f"stablehlo.subtract {value}, {beside} : {type_of(shape, 'float32')}")]
    if not stages[-1].reduced:
        made.insert(0, (waiting[0], shape, "float32"))
    if launch.turned:
        made[0] = _turned(body, *made[0])
    return _fitted(made, body.gives)


def _fitted(made: Made, gives: Sequence[Typed]) -> Made:
    """For each result the value with as many elements, or the nearest."""
    fitted: Made = []
    for view, _, _ in gives:
        fitted.append(min(made, key=lambda each: abs(math.prod(each[1]) - view.elements)))
    return fitted


def _turned(body: Body, value: str, shape: Sequence[int], dtype: str) -> tuple[str, Sequence[int], str]:
    """The value with another dimension innermost."""
    count = math.prod(shape)
    inner = next((n for n in shape[1:] if n > 1), 1)
    if count == inner or inner == 1:
        return value, shape, dtype
    rows = count // inner
    flat = body.reshape(value, shape, dtype, (inner, rows))
    types = f"({type_of((inner, rows), dtype)}) -> {type_of((rows, inner), dtype)}"
    return body.op(f"stablehlo.transpose {flat}, dims = [1, 0] : {types}"), (rows, inner), dtype


def _moved(body: Body, launch: Launch, result: View) -> tuple[str, Sequence[int], str]:
    """A copy, a cast, or the same in another order."""
    have: Sequence[int]
    value, have, dtype = body.shaped(0)
    if launch.turned:
        value, have, dtype = _turned(body, value, have, dtype)
    same = dtype == result.dtype
    if same and math.prod(have) == result.elements:
        if launch.turned:
            return value, have, dtype
        zero = body.constant(dtype, have) if dtype != "bool" else ""
        return (body.op(f"stablehlo.add {value}, {zero} : {type_of(have, dtype)}") if zero else value), have, dtype
    value = body.convert(value, have, dtype, result.dtype)
    shape = result.shape if math.prod(have) != result.elements else have
    return body.spread(value, have, result.dtype, shape), shape, result.dtype


def _list(body: Body, launch: Launch) -> Made:
    """An update of a list of tensors by others: operands list by list, results likewise."""
    count = int(launch.told["list"])
    values: list[str] = []
    sizes: list[int] = []
    for i in range(len(body.takes)):
        value, have, dtype = body.shaped(i)
        size = math.prod(have)
        value = body.reshape(value, have, dtype, (size,))
        values.append(body.convert(value, (size,), dtype, "float32"))
        sizes.append(size)
    made: Made = []
    for member in range(count):
        seen = [value for i, value in enumerate(values) if i % count == member and sizes[i] == sizes[member]]
        made.append((body.chain(launch.stages[0].ops, seen, (sizes[member],), "float32"), (sizes[member],), "float32"))
    return [made[i % count] for i in range(len(body.gives))]
