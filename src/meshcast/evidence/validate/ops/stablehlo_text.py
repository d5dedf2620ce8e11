"""Small StableHLO modules written op by op, as text: what a measured op was, without tracing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An SSA value."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def type(self) -> str:
        """MLIR's type."""
        return tensor_type(self.shape, self.dtype)


def tensor_type(shape: Sequence[int], dtype: str) -> str:
    """`tensor<8x128xbf16>`."""
    return f"tensor<{'x'.join((*map(str, shape), dtype))}>"


class ModuleText:
    """A module of one function under construction; every method adds an op and gives its result."""

    def __init__(self, name: str, devices: int = 1) -> None:
        self._name = name
        self._devices = devices
        self._arguments: list[Value] = []
        self._lines: list[str] = []
        self._count = 0

    def argument(self, shape: Sequence[int], dtype: str) -> Value:
        """One more argument of the function."""
        value = Value(name=f"%arg{len(self._arguments)}", shape=tuple(shape), dtype=dtype)
        self._arguments.append(value)
        return value

    def finish(self, *results: Value) -> str:
        """The module's text."""
        arguments = ", ".join(f"{value.name}: {value.type}" for value in self._arguments)
        types = ", ".join(value.type for value in results)
        names = ", ".join(value.name for value in results)
        body = "\n".join(f"    {line}" for line in self._lines)
        return (
            f"module @{self._name} attributes "
            f"{{mhlo.num_partitions = {self._devices} : i32, mhlo.num_replicas = 1 : i32}} {{\n"
            f"  func.func public @main({arguments}) -> ({types}) {{\n{body}\n    return {names} : {types}\n  }}\n}}\n"
        )

    def _new(self, shape: Sequence[int], dtype: str) -> Value:
        self._count += 1
        return Value(name=f"%{self._count - 1}", shape=tuple(shape), dtype=dtype)

    def op(self, text: str, shape: Sequence[int], dtype: str) -> Value:
        """An op written out, less its result's name."""
        value = self._new(shape, dtype)
        self._lines.append(f"{value.name} = {text}")
        return value

    def constant(self, number: float, dtype: str, shape: Sequence[int] = ()) -> Value:
        """A constant, the same in every place."""
        literal = f"{number:e}" if dtype.startswith(("f", "bf")) else f"{int(number)}"
        return self.op(f"stablehlo.constant dense<{literal}> : {tensor_type(shape, dtype)}", shape, dtype)

    def unary(self, name: str, x: Value) -> Value:
        """An elementwise function."""
        return self.op(f"stablehlo.{name} {x.name} : {x.type}", x.shape, x.dtype)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """An elementwise op of two values of one shape."""
        return self.op(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.shape, x.dtype)

    def by_constant(self, name: str, x: Value, number: float) -> Value:
        """An elementwise op with a constant on the right."""
        return self.binary(name, x, self.constant(number, x.dtype, x.shape))

    def above(self, x: Value, number: float) -> Value:
        """The StableHLO of a comparison: where `x` is greater than a number."""
        other = self.constant(number, x.dtype, x.shape)
        types = f"({x.type}, {x.type}) -> {tensor_type(x.shape, 'i1')}"
        return self.op(f"stablehlo.compare GT, {x.name}, {other.name}, FLOAT : {types}", x.shape, "i1")

    def select(self, where: Value, x: Value, y: Value) -> Value:
        """`x` where a predicate holds, else `y`."""
        names = f"{where.name}, {x.name}, {y.name}"
        return self.op(f"stablehlo.select {names} : {where.type}, {x.type}", x.shape, x.dtype)

    def convert(self, x: Value, dtype: str) -> Value:
        """The StableHLO of a conversion to another type."""
        if x.dtype == dtype:
            return x
        return self.op(f"stablehlo.convert {x.name} : ({x.type}) -> {tensor_type(x.shape, dtype)}", x.shape, dtype)

    def broadcast(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """`x` spread over a larger shape; `dims` is where its own dimensions go."""
        places = ", ".join(map(str, dims))
        text = f"stablehlo.broadcast_in_dim {x.name}, dims = [{places}] : ({x.type}) -> {tensor_type(shape, x.dtype)}"
        return self.op(text, shape, x.dtype)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The StableHLO of a reshape."""
        return self.op(f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor_type(shape, x.dtype)}", shape, x.dtype)

    def reduce(self, name: str, x: Value, dims: Sequence[int], start: float = 0.0) -> Value:
        """A reduction over dimensions."""
        init = self.constant(start, x.dtype)
        shape = [size for at, size in enumerate(x.shape) if at not in dims]
        text = (
            f"stablehlo.reduce({x.name} init: {init.name}) applies stablehlo.{name} across dimensions = "
            f"[{', '.join(map(str, dims))}] : ({x.type}, {init.type}) -> {tensor_type(shape, x.dtype)}"
        )
        return self.op(text, shape, x.dtype)

    def dot(
        self, x: Value, y: Value, contracting: tuple[int, int] | None = None, batch: int = 0, dtype: str | None = None
    ) -> Value:
        """A product over one dimension of each; the first `batch` dimensions run side by side."""
        left, right = contracting or (len(x.shape) - 1, batch)
        rows = [size for at, size in enumerate(x.shape) if at >= batch and at != left]
        columns = [size for at, size in enumerate(y.shape) if at >= batch and at != right]
        shape = [*x.shape[:batch], *rows, *columns]
        dtype = dtype or x.dtype
        shared = ", ".join(map(str, range(batch)))
        batching = f"batching_dims = [{shared}] x [{shared}], " if batch else ""
        text = (
            f"stablehlo.dot_general {x.name}, {y.name}, {batching}contracting_dims = [{left}] x [{right}] "
            f": ({x.type}, {y.type}) -> {tensor_type(shape, dtype)}"
        )
        return self.op(text, shape, dtype)

    def take(self, table: Value, indices: Value, axis: int) -> Value:
        """Slices of a table along one of its dimensions, one for each index of a vector."""
        offsets = ", ".join(str(at) for at in range(len(table.shape)) if at != axis)
        sizes = ", ".join("1" if at == axis else str(size) for at, size in enumerate(table.shape))
        shape = [indices.shape[0] if at == axis else size for at, size in enumerate(table.shape)]
        text = (
            f'"stablehlo.gather"({table.name}, {indices.name}) <{{dimension_numbers = #stablehlo.gather<offset_dims = '
            f"[{offsets}], collapsed_slice_dims = [{axis}], start_index_map = [{axis}], index_vector_dim = 1>, "
            f"indices_are_sorted = false, slice_sizes = array<i64: {sizes}>}}> : ({table.type}, {indices.type}) -> "
            f"{tensor_type(shape, table.dtype)}"
        )
        return self.op(text, shape, table.dtype)

    def loop(
        self, trips: int, carried: Sequence[Value], body: Callable[[Sequence[Value]], Sequence[Value]]
    ) -> list[Value]:
        """`carried` after `trips` turns of `body`, which takes and gives as many values; one turn needs no loop."""
        if trips == 1:
            return list(body(carried))
        start = self.constant(0, "i32")
        initial = (start, *carried)
        inside = [self._new(value.shape, value.dtype) for value in initial]
        result = self._new((), "")
        types = ", ".join(value.type for value in initial)
        pairs = ", ".join(f"{mine.name} = {outer.name}" for mine, outer in zip(inside, initial, strict=True))
        self._lines += [f"{result.name}:{len(initial)} = stablehlo.while({pairs}) : {types}", "cond {"]
        last = self.constant(trips, "i32")
        scalars = f"({start.type}, {start.type}) -> tensor<i1>"
        more = self.op(f"stablehlo.compare LT, {inside[0].name}, {last.name}, SIGNED : {scalars}", (), "i1")
        self._lines += [f"stablehlo.return {more.name} : tensor<i1>", "} do {"]
        given = body(inside[1:])
        after = self.binary("add", inside[0], self.constant(1, "i32"))
        names = ", ".join(value.name for value in (after, *given))
        self._lines += [f"stablehlo.return {names} : {types}", "}"]
        return [
            Value(name=f"{result.name}#{at}", shape=value.shape, dtype=value.dtype)
            for at, value in enumerate(carried, 1)
        ]
