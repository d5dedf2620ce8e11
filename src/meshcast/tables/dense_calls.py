"""A recommender's step in eager PyTorch, the dense part call by call, with marks where tables are looked up and updated.

DLRM (dot products of every pair of features) and DCNv2 (cross layers), as `benchmarks/embeddings.py` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshcast.programs import CallWriter, Recording, View
from meshcast.tables.layer_calls import EagerLayers, WrittenLinear
from meshcast.zoo import DenseLayers

HALVES = {"bfloat16": "bfloat16", "float16": "float16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenStep:
    """A step's calls, and at which of them each of its parts begins, in order."""

    recording: Recording
    starts: dict[str, int]

    def part_of(self, call: int) -> str:
        """The part that a call belongs to."""
        return max((start, part) for part, start in self.starts.items() if start <= call)[1]


class _Stack:
    """Linear layers with ReLU between them, and after the last one where asked."""

    def __init__(self, layers: EagerLayers, widths: Sequence[int], *, last: bool) -> None:
        self.layers = layers
        self.linears = [layers.linear(n, m) for n, m in pairwise(widths)]
        self.last = last
        self.made: list[View | None] = []

    def forward(self, x: View) -> View:
        self.layers.calls.module()
        for number, linear in enumerate(self.linears):
            x = self.layers.apply(linear, x)
            after = self.last or number < len(self.linears) - 1
            x = self.layers.relu(x) if after else x
            self.made.append(x if after else None)
        return x

    def back(self, gradient: View, *, needed: bool) -> View:
        for number, linear in reversed(list(enumerate(self.linears))):
            if (made := self.made[number]) is not None:
                gradient = self.layers.relu_back(gradient, made)
            gradient = self.layers.back(linear, gradient, needed=needed or number > 0) or gradient
        return gradient


def written_step(layers: DenseLayers, batch: int, precision: str, *, stacked: bool = False) -> WrittenStep:
    """The calls of one training step with `batch` samples.

    Args:
        layers: The dense part.
        batch: Samples.
        precision: `float32`, `tf32` (products in fp32 on tensor cores), `bfloat16` or `float16` (autocast).
        stacked: Whether pooled rows are one result a table, stacked, instead of one of all tables.
    """
    calls = CallWriter()
    write = EagerLayers(calls, half=HALVES.get(precision), tf32=precision == "tf32")
    starts: dict[str, int] = {}

    def begin(part: str) -> None:
        starts[part] = len(calls.ops)

    features, dim = layers.features, layers.dim
    bottom = _Stack(write, (layers.dense, *layers.bottom), last=True)
    cross = _Cross(write, layers) if layers.cross else None
    top = _Stack(write, (layers.read, *layers.top), last=False)
    x = calls.tensor(batch, layers.dense, held="input")
    labels = calls.tensor(batch, held="input")

    with calls.autocast(write.half is not None):
        begin("look_up")
        pooled = _pooled(calls, batch, features, dim, stacked=stacked)
        begin("bottom")
        below = bottom.forward(x)
        begin("above")
        before = calls.look("unsqueeze", below, (batch, 1, dim))
        every = calls.new("cat", [before, write.cast(pooled)], batch, features + 1, dim, dim=1)
        read = calls.look("view", every, (batch, (features + 1) * dim))
        pairs = None
        if cross is not None:
            read = cross.forward(read)
        else:
            pairs = _Pairs(write, every)
            read = pairs.forward()
        click = top.forward(read)
    begin("loss")
    gradient = _loss(calls, click, labels)
    begin("backward")
    gradient = top.back(gradient, needed=True)
    gradient = cross.back(gradient) if cross is not None else pairs.back(gradient) if pairs else gradient
    width = (features + 1) * dim
    gradient = calls.look("view", gradient, (batch, features + 1, dim))
    calls.nothing("slice")
    rows = calls.look("slice", gradient, (batch, features, dim), (width, dim, 1), dim)
    if rows.dtype != "float32":
        rows = calls.alike("_to_copy", rows, dtype="float32")
    below_gradient = calls.look("squeeze", gradient, (batch, dim), (width, 1))
    begin("bottom_backward")
    bottom.back(below_gradient, needed=False)
    begin("update")
    returned = _unpooled(calls, rows, stacked=stacked)
    begin("optimizer")
    write.adagrad()
    recording = calls.recording(*returned, *(each.weight for each in write.linears), label="recommender")
    return WrittenStep(recording=recording, starts=starts)


def _pooled(calls: CallWriter, batch: int, features: int, dim: int, *, stacked: bool) -> View:
    """Pooled rows (batch, features, dim): of one look-up table by table, or of as many as there are tables, stacked."""
    if stacked:
        each = [calls.tensor(batch, dim, held="input") for _ in range(features)]
        calls.nothing("stack")  # looks at each once more, below the dispatcher
        wide = [View(view.storage, (batch, 1, dim), (dim, dim, 1), view.dtype) for view in each]
        return calls.new("cat", wide, batch, features, dim, dim=1)
    rows = calls.tensor(features * batch, dim, held="input")
    calls.look("view", rows, (features, batch, dim))
    return calls.look("transpose", rows, (batch, features, dim), (dim, batch * dim, 1))


def _unpooled(calls: CallWriter, rows: View, *, stacked: bool) -> list[View]:
    """The gradient of pooled rows as the tables take it."""
    batch, features, dim = rows.shape
    step, inner, _ = rows.strides
    if stacked:
        calls.nothing("unbind")
        return [View(rows.storage, (batch, dim), (step, 1), rows.dtype, table * inner) for table in range(features)]
    turned = calls.look("transpose", rows, (features, batch, dim), (inner, step, 1))
    whole = calls.new("clone", [turned], features, batch, dim)
    return [calls.look("_unsafe_view", whole, (features * batch, dim))]


def _loss(calls: CallWriter, click: View, labels: View) -> View:
    """Binary cross entropy of logits, the mean of it, and the gradient of the logits."""
    batch = labels.shape
    narrow = click.dtype
    logits = calls.look("squeeze", click, batch)
    if narrow != "float32":
        logits = calls.alike("_to_copy", logits, dtype="float32")
    # `binary_cross_entropy_with_logits` is made of others on CUDA (ATen/native/Loss.cpp).
    less = calls.alike("rsub", labels)
    part = calls.alike("mul_", less, logits)
    logs = calls.alike("log_sigmoid_forward", logits)
    every = calls.alike("sub", part, logs)
    mean = calls.new("mean", [every])
    calls.phase = "backward"
    calls.alike("ones_like", mean)
    chances = calls.alike("sigmoid", logits)
    off = calls.alike("sub", chances, labels)
    gradient = calls.alike("div_", calls.alike("mul", off, mean))
    if narrow != "float32":
        gradient = calls.alike("_to_copy", gradient, dtype=narrow)
    return calls.look("unsqueeze", gradient, (*batch, 1))


class _Pairs:
    """DLRM's dot products of every pair of features, behind the dense one."""

    def __init__(self, write: EagerLayers, every: View) -> None:
        self.write, self.every = write, every
        count = every.shape[1]
        self.count = count * (count - 1) // 2
        self.first, self.second = (write.calls.tensor(self.count, dtype="int64", held="input") for _ in range(2))

    def forward(self) -> View:
        calls, every = self.write.calls, self.every
        batch, count, dim = every.shape
        calls.module()
        calls.nothing("view")
        self.turned = calls.turned(every)
        products = self.write.product("bmm", [every, self.turned], batch, count, count)
        dense = calls.look("select", every, (batch, dim), (count * dim, 1))
        calls.nothing("select", 2)
        picked = calls.new("index", [products, self.first, self.second], batch, self.count)
        return calls.new("cat", [dense, picked], batch, dim + self.count, dim=1)

    def back(self, gradient: View) -> View:
        calls, every = self.write.calls, self.every
        batch, count, dim = every.shape
        read = dim + self.count
        dense = calls.look("slice", gradient, (batch, dim), (read, 1))
        picked = calls.look("slice", gradient, (batch, self.count), (read, 1), dim)
        empty = calls.new("new_zeros", [], batch, count, count, dtype=gradient.dtype)
        products = calls.call("index_put", [empty, self.first, self.second, picked], [empty], accumulate=True)
        first = calls.new("select_backward", [dense], batch, count, dim)
        calls.nothing("transpose")
        right = self.write.product("bmm", [self.turned, products], batch, dim, count)
        calls.nothing("transpose")
        left = self.write.product("bmm", [products, every], batch, count, dim)
        total = calls.alike("add", first, left)
        return calls.alike("add", total, calls.turned(right))


class _Cross:
    """DCNv2's cross layers of low rank: `x = x0 * (W (V x) + b) + x`."""

    def __init__(self, write: EagerLayers, layers: DenseLayers) -> None:
        self.write = write
        self.v: list[WrittenLinear] = []
        self.w: list[WrittenLinear] = []
        for _ in range(layers.cross):
            self.v.append(write.linear(layers.read, layers.rank, bias=False))
        for _ in range(layers.cross):
            self.w.append(write.linear(layers.rank, layers.read))
        self.crossed: list[View] = []

    def forward(self, x: View) -> View:
        self.first = x
        self.write.calls.module()
        for v, w in zip(self.v, self.w, strict=True):
            made = self.write.apply(w, self.write.apply(v, x))
            self.crossed.append(made)
            x = self.write.calls.alike("add", self.write.calls.alike("mul", self.first, made), x)
        return x

    def back(self, gradient: View) -> View:
        calls, write = self.write.calls, self.write
        total: View | None = None
        for number in reversed(range(len(self.v))):
            if number == 0 and total is not None:
                total = calls.alike("add", total, gradient)
            of_first = calls.alike("mul", gradient, self.crossed[number])
            of_made = calls.alike("mul", gradient, self.first)
            total = of_first if total is None else calls.alike("add", total, of_first)
            of_v = write.back(self.w[number], of_made)
            assert of_v is not None
            of_x = write.back(self.v[number], of_v)
            assert of_x is not None
            gradient = calls.alike("add", total if number == 0 else gradient, of_x)
        return gradient
