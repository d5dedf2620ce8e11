"""A recommender's step in eager PyTorch, the dense part call by call, with marks where tables are looked up and updated.

DLRM (dot products of every pair of features) and DCNv2 (cross layers), as `benchmarks/embeddings.py` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from meshcast.jobs.embedding_tables.layer_calls import EagerLayers, WrittenLinear
from meshcast.programs import CallWriter, Recording, View
from meshcast.zoo import DenseLayers

# What the host does inside of an operator beside what it does for any, as views that take as long: `index` takes it 2.1 to 2.6
# times what `mul` does, `cat` of 27 tensors twice as much more than of 2 (`benchmarks/operator_calls.py`, PyTorch 2.13 on a CPU).
INDEX, JOINED_TENSORS = 4, 5  # views, and tensors of a `cat` that are worth one
ZERO_GRAD = 20  # gradients let go of by Python, as views that take the host as long (0.2 ms in a profile of such steps)
# A backward pass, as views that take the host as long: autograd's engine hands over to its thread and back. By steps of dense
# layers alone beside whole ones on the same host (`benchmarks/recommender_host.py`, the half that may be looked at).
ENGINE = 33
# Operators inside of an `index_put` that sums up (`ATen/native/cuda/Indexing.cu`), beside its own call: remainders, products and
# sums of indices, ranges, a division, and as many reshapes and empty results; counted in a profile of such steps, as views.
INDEXED = 26
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


def written_step(
    layers: DenseLayers, batch: int, precision: str, *, stacked: bool = False, lists: bool = True
) -> WrittenStep:
    """The calls of one training step with `batch` samples.

    Args:
        layers: The dense part.
        batch: Samples.
        precision: `float32`, `tf32` (products in fp32 on tensor cores), `bfloat16` or `float16` (autocast).
        stacked: Whether pooled rows are one result a table, stacked, instead of one of all tables.
        lists: Whether the optimizer takes parameters in lists, as PyTorch 2.1 and later do.
    """
    calls = CallWriter()
    write = EagerLayers(calls, half=HALVES.get(precision), tf32=precision == "tf32")
    if layers.towers:
        return _written_towers(layers, write, batch, stacked=stacked, lists=lists)
    starts: dict[str, int] = {}

    def begin(part: str) -> None:
        starts[part] = len(calls.ops)

    features, dim = layers.features, layers.dim
    bottom = _Stack(write, (layers.dense, *layers.bottom), last=True)
    cross = _Cross(write, layers) if layers.cross else None
    top = _Stack(write, (layers.read, *layers.top), last=False)
    x = calls.tensor(batch, layers.dense, held="input")
    labels = calls.tensor(batch, held="input")

    begin("look_up")
    calls.nothing("zero_grad", ZERO_GRAD)
    with calls.autocast(write.half is not None):
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
    write.adagrad(lists=lists)
    recording = calls.recording(*returned, *(each.weight for each in write.linears), label="recommender")
    return WrittenStep(recording=recording, starts=starts)


def written_layers(widths: Sequence[int], batch: int) -> Recording:
    """A training step of dense layers alone, in fp32: what `benchmarks/recommender_host.py` tells a host's speed by."""
    calls = CallWriter()
    write = EagerLayers(calls, half=None, tf32=False)
    layers = _Stack(write, widths, last=False)
    x, labels = calls.tensor(batch, widths[0], held="input"), calls.tensor(batch, held="input")
    calls.nothing("zero_grad", ZERO_GRAD)
    gradient = _loss(calls, layers.forward(x), labels)
    layers.back(gradient, needed=False)
    write.adagrad()
    return calls.recording(*(each.weight for each in write.linears), label="layers")


def _written_towers(layers: DenseLayers, write: EagerLayers, batch: int, *, stacked: bool, lists: bool) -> WrittenStep:
    """Two towers over the halves of the tables; what they give is multiplied, summed up, and judged as a click."""
    calls, starts = write.calls, {}
    towers = [_Stack(write, (count * layers.dim, *layers.towers), last=True) for count in layers.halves]
    labels = calls.tensor(batch, held="input")
    starts["look_up"] = len(calls.ops)
    calls.nothing("zero_grad", ZERO_GRAD)
    with calls.autocast(write.half is not None):
        pooled = _pooled(calls, batch, layers.features, layers.dim, stacked=stacked)
        starts["above"] = len(calls.ops)
        made, first = [], 0
        for tower, count in zip(towers, layers.halves, strict=True):
            step, inner, _ = pooled.strides
            part = calls.look("slice", pooled, (batch, count, layers.dim), (step, inner, 1), first * inner)
            made.append(tower.forward(calls.new("clone", [part], batch, count * layers.dim)))
            first += count
        product = calls.alike("mul", *made)
        click = calls.new("sum", [product], batch, dtype="float32", dim=(1,))  # autocast sums in fp32
    starts["loss"] = len(calls.ops)
    gradient = calls.look("expand", _loss(calls, click, labels), product.shape, (1, 0))
    starts["backward"] = len(calls.ops)
    if write.half is not None:
        gradient = calls.alike("_to_copy", gradient, dtype=write.half)
    parts = []
    for number, tower in enumerate(towers):
        of_one = calls.new("mul", [made[1 - number], gradient], *product.shape)
        of_read = tower.back(of_one, needed=True)
        if of_read.dtype != "float32":
            of_read = calls.alike("_to_copy", of_read, dtype="float32")
        parts.append(calls.look("view", of_read, (batch, layers.halves[number], layers.dim)))
    rows = calls.new("cat", parts, batch, layers.features, layers.dim, dim=1)
    starts["update"] = len(calls.ops)
    returned = _unpooled(calls, rows, stacked=stacked)
    starts["optimizer"] = len(calls.ops)
    write.adagrad(lists=lists)
    recording = calls.recording(*returned, *(each.weight for each in write.linears), label="two-tower")
    return WrittenStep(recording=recording, starts=starts)


def _pooled(calls: CallWriter, batch: int, features: int, dim: int, *, stacked: bool) -> View:
    """Pooled rows (batch, features, dim): of one look-up table by table, or of as many as there are tables, stacked."""
    if stacked:
        each = [calls.tensor(batch, dim, held="input") for _ in range(features)]
        calls.nothing("stack", 1 + features // JOINED_TENSORS)  # looks at each once more, below the dispatcher
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
    calls.nothing("engine", ENGINE)
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
        calls.nothing("index", INDEX)
        picked = calls.new("index", [products, self.first, self.second], batch, self.count)
        return calls.new("cat", [dense, picked], batch, dim + self.count, dim=1)

    def back(self, gradient: View) -> View:
        calls, every = self.write.calls, self.every
        batch, count, dim = every.shape
        read = dim + self.count
        dense = calls.look("slice", gradient, (batch, dim), (read, 1))
        picked = calls.look("slice", gradient, (batch, self.count), (read, 1), dim)
        empty = calls.new("new_zeros", [], batch, count, count, dtype=gradient.dtype)
        calls.nothing("indices", INDEXED)
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
