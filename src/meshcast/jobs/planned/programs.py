"""The programs of one part of a pipeline, made from a model's own layers by `jax.vjp`: forward, backward, update.

    forward(params, x, batch)              -> (y, saved)
    backward(params, saved, dy, gradients) -> (dx, gradients)
    update(params, gradients, opt_state)   -> (params, opt_state)

and where the schedule splits the backward pass (`jobs.planned.splitting`)

    backward(params, saved, dy)                        -> (dx, weight_saved)
    weight(params, saved, weight_saved, gradients)     -> gradients

`saved` is what `jax.vjp` of the forward pass keeps, less the weights: the model's `remat` decides. How it is sharded is
for the partitioner to say: the forward pass is partitioned first, and the backward pass takes what it gives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast.jobs.planned.splitting import split
from meshcast.partition import partition
from meshcast.programs import Program, capture, entry_function, ir, sdy
from meshcast.zoo import BATCH, MeshLayout, Sections, adamw, adamw_state, jit_options, joined, parted

# Parts are made side by side, but traced one after the other: what they have in common is then traced once.
_TRACING = threading.Lock()
Made = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKind:
    """What tells parts apart besides their layers.

    Attributes:
        first: Whether the part begins with the embedding.
        last: Whether the part ends with the loss.
        rows: Sequences of a microbatch on all devices of a replica.
        dtype: The dtype of weights and activations.
        gradients: Their type.
        spread: The layout of a whole stage, over whose replicas the optimizer is shared out; None if it is not.
    """

    first: bool
    last: bool
    rows: int
    dtype: str
    gradients: str = "float32"
    spread: MeshLayout | None = None


def captured_as(name: str, platform: str, *, precise: bool) -> Made:
    """Makes programs of functions: `name, forward` and so on, lowered for a platform."""

    def made(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Program:
        label, traced = f"{name}, {function.__name__}", precisely(function) if precise else function
        with _TRACING:
            return capture(traced, *args, name=label, platform=platform, options=options, uneven=True)

    return made


def pass_programs(sections: Sections, kind: PartKind, made: Made, *, apart: bool = False) -> tuple[Any, ...]:
    """A part's programs for one microbatch: forward and backward, and the weights' gradient where that is `apart`.

    Args:
        sections: What the part is made of.
        kind: Which part it is.
        made: What to make of a function, its arguments and its options of `jax.jit`.
        apart: Whether the backward pass is split in two.
    """
    layout = sections.layout
    params, gradients = _params(sections, kind)
    shape = (kind.rows, sections.length)
    hidden = layout.struct((*shape, sections.width), kind.dtype, *layout.residual)
    tokens = layout.struct(shape, jnp.int32, BATCH, "context")
    batch = {n: tokens for n, taken in (("tokens", kind.first), ("targets", kind.last)) if taken}
    x, dy = None if kind.first else hidden, None if kind.last else hidden
    result = layout.struct((), jnp.float32) if kind.last else hidden

    # Of the loss the logits are saved; what is made of them element by element is made again.
    saving = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    loss = jax.checkpoint(sections.loss, prevent_cse=False, policy=saving)

    def run(params: Any, x: jax.Array, batch: Any) -> tuple[jax.Array, jax.Array]:
        x, balance = sections.through(params["layers"], x)
        y = loss(params["exit"], x, batch) if kind.last else layout.constrain(x, *layout.residual)
        return y, jnp.float32(0) if balance is None else balance

    found: list[_Kept] = []  # what tracing the forward pass leaves, for the backward pass

    def forward(params: Any, x: Any, batch: Any) -> tuple[jax.Array, Any]:
        embedded = None
        if kind.first and sections.adapters_only:
            x = sections.embed(params["entry"], batch)
        elif kind.first:
            x, embedded = jax.vjp(lambda entry: sections.embed(entry, batch), params["entry"])
        inner = {name: weights for name, weights in params.items() if name != "entry"}
        if sections.adapters_only:
            inner, frozen = parted(inner)
            (y, _), transposed = jax.vjp(lambda trained, x: run(joined(trained, frozen), x, batch), inner, x)
        else:
            (y, _), transposed = jax.vjp(partial(run, batch=batch), inner, x)
        found.append(_Kept.of((embedded, transposed), params))
        return y, found[-1].saved

    out = {} if layout.mesh is None else {"out_shardings": (result.sharding, None)}
    ahead = made(forward, (params, x, batch), out)
    if not found:  # it was not traced while it was made
        jax.eval_shape(forward, params, x, batch)
    kept = found[0]
    saved = _as_partitioned([jax.ShapeDtypeStruct(v.shape, v.dtype) for v in kept.saved], ahead, layout)

    def both(params: Any, saved: Any, dy: Any) -> tuple[jax.Array, Any]:
        """The gradients of the input, or of the embedded tokens, and of the weights."""
        embedded, transposed = kept.transposed(saved, params)
        one = jnp.float32(1)
        new, dx = transposed((one if kind.last else dy, one))
        dx = layout.constrain(dx, *layout.residual)
        return dx, new | ({"entry": embedded(dx)[0] if embedded else {}} if kind.first else {})

    def summed(gradients: Any, new: Any) -> Any:
        return jax.tree.map(lambda total, g: total + g.astype(total.dtype), gradients, new)

    dx = None if kind.first else hidden
    if apart:
        halves = _halves(both, (params, saved, dy), is_first=kind.first)

        def weight(params: Any, saved: Any, weight_saved: Any, gradients: Any) -> Any:
            return summed(gradients, halves.late(params, saved, weight_saved))

        options = {} if layout.mesh is None else {"out_shardings": (dx and dx.sharding, None)}
        early = made(halves.early, (params, saved, dy), options)
        between = _as_partitioned(halves.between, early, layout)
        late = jit_options(layout, donate=(3,), results=gradients)
        return ahead, early, made(weight, (params, saved, between, gradients), late)

    def backward(params: Any, saved: Any, dy: Any, gradients: Any) -> tuple[Any, Any]:
        dx, new = both(params, saved, dy)
        return None if kind.first else dx, summed(gradients, new)

    back = jit_options(layout, donate=(3,), results=(dx, gradients))
    return ahead, made(backward, (params, saved, dy, gradients), back)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Halves:
    """A backward pass in two: `early(params, saved, dy)`, `late(params, saved, weight_saved)`, what passes between."""

    early: Callable[..., Any]
    late: Callable[..., Any]
    between: list[jax.ShapeDtypeStruct]


def _halves(both: Callable[..., Any], args: tuple[Any, ...], *, is_first: bool) -> _Halves:
    """The gradient of the input, and behind it that of the weights."""
    traced, shapes = jax.make_jaxpr(both, return_shape=True)(*args)
    results, weights = jax.tree.structure(shapes[1]), len(jax.tree.leaves(shapes[1]))
    seen = [True] * len(jax.tree.leaves(args[:2])) + [False] * len(jax.tree.leaves(args[2]))
    found = split(traced, [True, *(False,) * weights], seen)

    def backward(params: Any, saved: Any, dy: Any) -> tuple[Any, list[jax.Array]]:
        dx, *passed = jaxpr_as_fun(found.first)(*jax.tree.leaves((params, saved, dy)))
        return None if is_first else dx, passed

    def late(params: Any, saved: Any, weight_saved: Any) -> Any:
        found_there = jaxpr_as_fun(found.second)(*jax.tree.leaves((params, saved, weight_saved)))
        return jax.tree.unflatten(results, found_there)

    between = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in found.first.out_avals[1:]]
    return _Halves(early=backward, late=late, between=between)


def _params(sections: Sections, kind: PartKind) -> tuple[Any, Any]:
    """A part's weights, and gradients for those that are trained."""
    weights = {"layers": sections.layers}
    weights |= {"entry": sections.entry} if kind.first else {}
    weights |= {"exit": sections.exit} if kind.last else {}
    trained = parted(weights)[0] if sections.adapters_only else weights
    return sections.layout.params(weights, kind.dtype), sections.layout.params(trained, kind.gradients)


def update_program(sections: Sections, kind: PartKind, made: Made) -> Any:
    """AdamW on fp32 weights; those in half precision are copies of them. Shared out, each replica has a share of all."""
    layout = sections.layout
    params, gradients = _params(sections, kind)
    params = parted(params)[0] if sections.adapters_only else params
    if kind.spread is not None:
        layout = kind.spread
        params, gradients = (
            jax.tree.map(lambda leaf: layout.spread_over_replicas(layout.placed(leaf)), tree)
            for tree in (params, gradients)
        )
    half = jnp.dtype(kind.dtype).itemsize < 4
    state = adamw_state(gradients)
    opt_state = {"adamw": state} | ({"master": state["m"]} if half else {})  # fp32, and sharded as the moments are

    def update(params: Any, gradients: Any, opt_state: Any) -> tuple[Any, Any]:
        stepped, state = adamw(opt_state["master"] if half else params, gradients, opt_state["adamw"])
        if not half:
            return stepped, {"adamw": state}
        return jax.tree.map(lambda p, m: m.astype(p.dtype), params, stepped), {"adamw": state, "master": stepped}

    # Copies in half precision are not read, and still their buffers are what the new ones are written to.
    options = {**jit_options(layout, donate=(0, 2), results=(params, opt_state)), "keep_unused": True}
    return made(update, (params, gradients, opt_state), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What a transposed function holds: weights, which are there anyhow, and values that have to be saved.

    Attributes:
        tree: Its structure.
        origins: Where each of its leaves comes from: (True, the number of a weight) or (False, the number of a value).
        saved: The values, each once.
    """

    tree: Any
    origins: tuple[tuple[bool, int], ...]
    saved: list[Any]

    @classmethod
    def of(cls, transposed: Any, params: Any) -> _Kept:
        """What `jax.vjp` has returned; a weight is known by being the very same tracer."""
        leaves, tree = jax.tree.flatten(transposed)
        weights = {id(leaf): number for number, leaf in enumerate(jax.tree.leaves(params))}
        saved: dict[int, Any] = {}
        origins = []
        for leaf in leaves:
            if id(leaf) in weights:
                origins.append((True, weights[id(leaf)]))
                continue
            saved.setdefault(id(leaf), leaf)
            origins.append((False, list(saved).index(id(leaf))))
        return cls(tree=tree, origins=tuple(origins), saved=list(saved.values()))

    def transposed(self, saved: list[Any], params: Any) -> Any:
        """The function again, with other values."""
        weights = jax.tree.leaves(params)
        return self.tree.unflatten(weights[at] if is_weight else saved[at] for is_weight, at in self.origins)


def _as_partitioned(shapes: Any, program: Program, layout: MeshLayout) -> Any:
    """Abstract values sharded as the partitioner leaves the second result of a program."""
    if layout.mesh is None:
        return shapes
    local = partition(program)
    main = entry_function(local.module, where=program.name)
    leaves, tree = jax.tree.flatten(shapes)
    specs = [_spec(ir.DictAttr(marks)) for marks in main.attributes["res_attrs"]][-len(leaves) :] if leaves else []
    placed = (
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(layout.mesh, spec))
        for leaf, spec in zip(leaves, specs, strict=True)
    )
    return jax.tree.unflatten(tree, placed)


def _spec(marks: Any) -> P:
    """The partition spec of a result's attributes; whole where nothing is said."""
    if "sdy.sharding" not in marks:
        return P()
    sharding = sdy.TensorShardingAttr(marks["sdy.sharding"])
    return P(
        *(
            tuple(sdy.AxisRefAttr(axis).name for axis in sdy.DimensionShardingAttr(d).axes) or None
            for d in sharding.dimension_shardings
        )
    )


def precisely(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose fp32 products are made in fp32, not in tf32 or passes of bf16."""

    @wraps(function)
    def precise(*args: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*args)

    return precise
