"""Products of activations with weights, in the compute dtype or in fewer bits.

fp8 after Micikevicius 2022 (`arXiv:2209.05433`): inputs in E4M3, gradients in E5M2, each tensor scaled such that its largest
value is the format's largest ("current scaling": the scale is that of the values themselves), sums in fp32:

    y = (q(x) q(w)) s_x s_w,   q(v) = round(v / s_v),   s_v = max |v| / largest

All three products of a layer, forward and both backward, are made so. Weights are stored in the compute dtype, and the
backward pass rounds them again: an 8-bit copy for every microbatch in flight would be larger than they are. Inputs are kept
for the backward pass as the product reads them: in 8 bits, once for all products that share them.

"fp8-rowwise" is E4M3 throughout with a scale for each row of the first operand and each column of the second, over what the
product sums up, as torchao's recipe of that name trains (`torchao/float8/float8_linear.py`, `float8_ops.py` of June 2025). The
three products sum up different indices, so that nothing rounded serves two of them: inputs are kept wide, and they and their
gradients are rounded anew along the rows of a batch for the gradients of weights. The forward product scales in its own
kernel, which stands for it here; those of gradients, which add up in full precision, are cuBLAS's without scales, and what they
give is scaled behind them.

"mxfp8" is E4M3 throughout with a scale for each block of 32 values (Rouhani 2023, `arXiv:2310.10537`). Blocks are scaled by
the kernel that rounds them and inside of the product, so that no pass looks for a tensor's largest value. StableHLO has no
such product: the program rounds without scales and moves 8 bits a value where hardware moves 8.25. It is there for its cost,
not to be run.

"nvfp4" is E2M1 in all three products, with a scale in E4M3 for each block of 16 values and one of the tensor above them (NVIDIA
2025, `arXiv:2509.25149`), so that a pass looks for the largest value first, as Transformer Engine's `NVFP4BlockScaling` does. Of
blocks' scales, random Hadamard transforms of 16 x 16 values and stochastic rounding, which the rounding kernels do, no byte is
counted: 4 bits a value where hardware moves 4.5.

"int8" rounds inputs, weights and gradients to whole numbers of 8 bits and adds up in 32, all three products (AQT as MaxText
configures it, `layers/quantizations.py`: fwd, dlhs and drhs of 8 bits).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from meshcast.base import UsageError
from meshcast.zoo.layers.saving import KEPT, ODD_PRODUCT, kept
from meshcast.zoo.sharding import Axes, MeshLayout

_LARGEST = {jnp.float8_e4m3fn: 448.0, jnp.float8_e5m2: 57344.0, jnp.float4_e2m1fn: 6.0, jnp.int8: 127.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FewerBits:
    """Products in fewer bits: the types of inputs and weights, and of gradients, and whether blocks or rows have scales."""

    inputs: Any
    gradients: Any
    blocks: bool = False
    rows: bool = False


_NARROW = {
    "fp8": _FewerBits(inputs=jnp.float8_e4m3fn, gradients=jnp.float8_e5m2),
    "fp8-rowwise": _FewerBits(inputs=jnp.float8_e4m3fn, gradients=jnp.float8_e4m3fn, rows=True),
    "mxfp8": _FewerBits(inputs=jnp.float8_e4m3fn, gradients=jnp.float8_e4m3fn, blocks=True),
    "nvfp4": _FewerBits(inputs=jnp.float4_e2m1fn, gradients=jnp.float4_e2m1fn),
    "int8": _FewerBits(inputs=jnp.int8, gradients=jnp.int8),
}
KINDS = ("plain", *_NARROW)


def product(
    equation: str,
    x: jax.Array,
    w: jax.Array,
    layout: MeshLayout,
    *,
    over: Sequence[Axes],
    held: bool = False,
    number: int = 1,
) -> jax.Array:
    """`jnp.einsum(equation, x, w)`, as the layout says; every index is in two of the equation's three terms."""
    return products(equation, x, (w,), layout, over=over, held=held, number=number)[0]


def products(
    equation: str,
    x: jax.Array,
    weights: Sequence[jax.Array],
    layout: MeshLayout,
    *,
    over: Sequence[Axes],
    held: bool = False,
    number: int = 1,
    name: str = KEPT,
) -> list[jax.Array]:
    """The products of one input with several weights.

    Args:
        equation: The equation of each product.
        x: The input, which is kept for the backward pass once.
        weights: What it is multiplied with.
        layout: In which precision.
        over: The axes that split the input. What is kept is pinned to them, or the sharding that weights are stored in would
            reach it from their gradients, and activations would travel instead.
        held: Something that the input is made of is kept already, shares of it for instance.
        number: Which of its layer's products the first of them is, in order. `remat="alternate"` keeps the results of odd ones,
            and of none in fp8: what torchtitan's selective checkpointing by ops does, which lists the plain product and
            no other (`parallelize_llama.py` of December 2024).
        name: Under which the input is kept (`zoo/layers/saving.py`).
    """
    if layout.products not in KINDS:
        raise UsageError(
            f"products in {layout.products!r} are not known", where="--set", fix="one of " + ", ".join(KINDS)
        )
    if layout.products != "plain":
        made_of = _scaled_by_rows if _NARROW[layout.products].rows else _scaled
        return list(made_of(equation, layout, over, held, name)(x, *weights))
    x = x if held else layout.constrain(kept(x, name), *over)
    made = [jnp.einsum(equation, x, w) for w in weights]
    return [kept(y, ODD_PRODUCT) if (number + place) % 2 else y for place, y in enumerate(made)]


def _quantised(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Values in a narrow format, and their scale.

    The largest value is sought in the type that values are passed on in, as Transformer Engine, torchao and Flax do: both passes
    read that, and nothing wider is written between them.
    """
    scale = jnp.maximum(jnp.max(jnp.abs(x)).astype(jnp.float32), 1e-30) / _LARGEST[dtype]
    scaled = x.astype(jnp.float32) / scale
    return (jnp.round(scaled) if dtype == jnp.int8 else scaled).astype(dtype), scale


def _narrow(equation: str, x: tuple[jax.Array, jax.Array], w: tuple[jax.Array, jax.Array], dtype: Any) -> jax.Array:
    """The product in the wider type, as the matrix engine rounds its sums; scales are applied behind it."""
    whole = x[0].dtype == jnp.int8  # adds up in whole numbers
    y = jnp.einsum(equation, x[0], w[0], preferred_element_type=jnp.int32 if whole else dtype)
    return y.astype(dtype) * (x[1] * w[1]).astype(dtype)


def _scaled(equation: str, layout: MeshLayout, over: Sequence[Axes], held: bool, name: str) -> Any:
    """The products in fewer bits as a function of the input and the weights."""
    kind = _NARROW[layout.products]

    def narrowed(x: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
        if not kind.blocks:
            return _quantised(x, dtype)
        return jnp.clip(x, -_LARGEST[dtype], _LARGEST[dtype]).astype(dtype), jnp.ones((), jnp.float32)

    inputs, result = equation.split("->")
    left, right = inputs.split(",")

    def forward(x: jax.Array, *weights: jax.Array) -> tuple[Any, Any]:
        narrow, scale = narrowed(x, kind.inputs)
        if not held:
            narrow, scale = layout.constrain(kept(narrow, name), *over), kept(scale, name)
        made = [_narrow(equation, (narrow, scale), narrowed(w, kind.inputs), x.dtype) for w in weights]
        seen = None if layout.frozen else (narrow, scale)  # weights without gradients have no use for it later
        return made, (seen, weights, jnp.zeros((), x.dtype))  # of the last the type alone

    def backward(saved: Any, gradients: list[jax.Array]) -> tuple[jax.Array, ...]:
        seen, weights, like = saved
        gradient_of_input: Any = None
        gradients_of_weights = []
        for w, gradient in zip(weights, gradients, strict=True):
            rounded = narrowed(gradient, kind.gradients)
            again = narrowed(w, kind.inputs)
            part = _narrow(f"{result},{right}->{left}", rounded, again, like.dtype)
            gradient_of_input = part if gradient_of_input is None else gradient_of_input + part
            gradients_of_weights.append(
                jnp.zeros_like(w) if layout.frozen else _narrow(f"{left},{result}->{right}", seen, rounded, w.dtype)
            )
        return gradient_of_input, *gradients_of_weights

    function = jax.custom_vjp(lambda x, *weights: forward(x, *weights)[0])
    function.defvjp(forward, backward)
    return function


def _scaled_by_rows(equation: str, layout: MeshLayout, over: Sequence[Axes], held: bool, name: str) -> Any:
    """The products with a scale for each row and column as a function of the input and the weights."""
    kind = _NARROW[layout.products]
    inputs, result = equation.split("->")
    left, right = inputs.split(",")

    def multiplied(terms: str, x: jax.Array, w: jax.Array, like: jax.Array, *, inside: bool = False) -> jax.Array:
        """A product of what is rounded for it; `inside` its own kernel multiplies by the scales."""
        operands, made = terms.split("->")
        first, second = operands.split(",")
        rows, columns = _by_rows(x, first, made, kind.inputs), _by_rows(w, second, made, kind.inputs)
        y = jnp.einsum(terms, rows[0], columns[0], preferred_element_type=like.dtype)
        return y if inside else y * rows[1].astype(like.dtype) * columns[1].astype(like.dtype)

    def forward(x: jax.Array, *weights: jax.Array) -> tuple[Any, Any]:
        x = x if held else layout.constrain(kept(x, name), *over)
        made = [multiplied(equation, x, w, x, inside=True) for w in weights]
        return made, (jnp.zeros((), x.dtype) if layout.frozen else x, weights)  # of what is frozen the type alone

    def backward(saved: Any, gradients: list[jax.Array]) -> tuple[jax.Array, ...]:
        x, weights = saved
        gradient_of_input: Any = None
        gradients_of_weights = []
        for w, gradient in zip(weights, gradients, strict=True):
            part = multiplied(f"{result},{right}->{left}", gradient, w, x)
            gradient_of_input = part if gradient_of_input is None else gradient_of_input + part
            gradients_of_weights.append(
                jnp.zeros_like(w) if layout.frozen else multiplied(f"{left},{result}->{right}", x, gradient, w)
            )
        return gradient_of_input, *gradients_of_weights

    function = jax.custom_vjp(lambda x, *weights: forward(x, *weights)[0])
    function.defvjp(forward, backward)
    return function


def _by_rows(x: jax.Array, indices: str, result: str, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Values in a narrow format, scaled by what is summed up, and their scales as the result of the product is laid out."""
    wide = x.astype(jnp.float32)
    summed = tuple(place for place, index in enumerate(indices) if index not in result)
    scale = jnp.maximum(jnp.max(jnp.abs(wide), axis=summed, keepdims=True), 1e-30) / _LARGEST[dtype]
    rest = "".join(index for index in indices if index in result)
    ordered = jnp.einsum(f"{rest}->{''.join(sorted(rest, key=result.index))}", jnp.squeeze(scale, summed))
    shape = [x.shape[indices.index(index)] if index in rest else 1 for index in result]
    return (wide / scale).astype(dtype), ordered.reshape(shape)
