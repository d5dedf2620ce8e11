"""Uniform quantisers with a learned clip, as FQ-Conv has them, and convolutions between them, in floats and in integers.

    Q(x) = c round(n clip(x / c, b, 1)) / n,    c = exp(s)

with s learned for every tensor. Weights and the network's input have both signs: b = -1, n = 2^(bits - 1) - 1, so that 2 bits are
-1, 0 and 1. Activations have b = 0, n = 2^bits - 1: their quantiser clips like a ReLU, and normalises, so that neither is
an operation of its own (Verhoef et al., "FQ-Conv: Fully Quantized Convolution for Efficient and Accurate Inference",
arXiv 1912.09356, 2019). Rounding passes gradients straight through (Bengio 2013); the clip's are its own, so that s learns from
what is rounded and what is clipped (ours: not checked against the paper).

A network is written once over a `QuantisedArithmetic`. `FakeQuantised` trains it: floats that quantisers have rounded.
`IntegerOnly` runs it: codes in 2, 4 or 8 bits, products summed in i32, sums scaled, rounded and stored again. An activation's
code is `q - 2^(bits - 1)`, so that every type is signed; what that shifts a sum by is an integer for each channel, `offset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from meshcast.base import UsageError
from meshcast.zoo.shapes.low_bit import LowBitConfig

LayerWeights = dict[str, jax.Array]


class Numbers(NamedTuple):
    """Numbers with the step between two neighbours; of integers, the code that stands for zero."""

    values: jax.Array
    step: jax.Array
    zero: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Standard deviations of Gaussian noise, each in steps of its quantiser; the first and the last layer have none.

    Those that are not zero may be traced, so that one program serves several levels.

    Attributes:
        weights: Of cells that hold weights.
        activations: Of what is applied to them.
        converter: Of the converter that a sum of products is read by, in steps of what it gives.
    """

    weights: float | jax.Array = 0.0
    activations: float | jax.Array = 0.0
    converter: float | jax.Array = 0.0

    @classmethod
    def within(cls, config: LowBitConfig, *, weights: float, activations: float, converter: float) -> Noise:
        """Noise of a network.

        Raises:
            UsageError: A deviation is larger than the range that its quantiser has steps for: of what it drowns nothing is left.
        """
        both, one = 2 * signed_steps(config.weight_bits), unsigned_steps(config.activation_bits)
        for name, deviation, steps, bits in (
            ("weight_noise", weights, both, config.weight_bits),
            ("activation_noise", activations, one, config.activation_bits),
            ("converter_noise", converter, one, config.activation_bits),
        ):
            if not 0 <= deviation <= steps:
                raise UsageError(
                    f"{name}={deviation:g} is a deviation in steps, and a quantiser of {bits} bits has {steps}: more leaves "
                    "nothing of what it is added to",
                    where="--set",
                    fix=f"0 to {steps}, such as {name}=0.2",
                )
        return cls(weights=weights, activations=activations, converter=converter)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.in_products or _is_noisy(self.converter)

    @property
    def in_products(self) -> bool:
        """Whether what is multiplied has any."""
        return _is_noisy(self.weights) or _is_noisy(self.activations)


def _is_noisy(deviation: float | jax.Array) -> bool:
    return isinstance(deviation, jax.Array) or deviation > 0


NOISELESS = Noise()


class QuantisedArithmetic(Protocol):
    """What a quantised network is computed in."""

    def entered(self, x: jax.Array, w: LayerWeights) -> Numbers:
        """The network's input, quantised."""
        ...

    def convolved(
        self, x: Numbers, w: LayerWeights, *, stride: int = 1, dilation: int = 1, edge: bool = False
    ) -> Numbers:
        """Sums of products with the weights, zeros around the input such that stride 1 keeps its size."""
        ...

    def activated(self, terms: Sequence[Numbers], w: LayerWeights, *, edge: bool = False) -> Numbers:
        """The sum of some terms, quantised to activations."""
        ...

    def pooled(self, x: Numbers) -> Numbers:
        """The mean over all positions, not yet quantised."""
        ...


def signed_steps(bits: int) -> int:
    """Steps from zero to the clip, of both signs."""
    return int(2 ** (bits - 1)) - 1


def unsigned_steps(bits: int) -> int:
    """Steps from zero to the clip, of one sign."""
    return int(2**bits) - 1


def storage(bits: int) -> DTypeLike:
    """The narrowest integer type of so many bits."""
    narrow: tuple[tuple[int, DTypeLike], ...] = ((2, jnp.int2), (4, jnp.int4), (8, jnp.int8))
    return next(dtype for most, dtype in narrow if bits <= most)


def rounded(x: jax.Array) -> jax.Array:
    """The nearest integer; its gradient is that of x."""
    return x + jax.lax.stop_gradient(jnp.round(x) - x)


def quantised(x: jax.Array, log_clip: jax.Array, steps: int, *, signed: bool) -> Numbers:
    """Q of the module's text."""
    clip = jnp.exp(log_clip.astype(jnp.float32))
    values = rounded(jnp.clip(x / clip, -1.0 if signed else 0.0, 1.0) * steps) * (clip / steps)
    return Numbers(values.astype(x.dtype), clip / steps)


class _Noisy:
    """Noise, with a key of its own for each time it is drawn."""

    def __init__(self, config: LowBitConfig, noise: Noise, key: jax.Array | None) -> None:
        self._config, self._noise, self._key = config, noise, key
        self._draws = 0

    def _noisy(self, x: jax.Array, deviation: float | jax.Array, step: jax.Array | float, *, edge: bool) -> jax.Array:
        if edge or self._key is None or not _is_noisy(deviation):
            return x
        self._draws += 1
        key = jax.random.fold_in(self._key, self._draws)
        drawn = jax.random.normal(key, x.shape, jnp.float32)
        return x + (deviation * step * drawn).astype(x.dtype)

    def _weight_bits(self, *, edge: bool) -> int:
        return self._config.edge_bits if edge else self._config.weight_bits

    def _bits(self, *, edge: bool) -> int:
        return self._config.edge_bits if edge else self._config.activation_bits


class FakeQuantised(_Noisy):
    """Training: every number a float that its quantiser has rounded."""

    def __init__(self, config: LowBitConfig, *, noise: Noise = NOISELESS, key: jax.Array | None = None) -> None:
        super().__init__(config, noise, key)

    def entered(self, x: jax.Array, w: LayerWeights) -> Numbers:
        """See `QuantisedArithmetic`."""
        return quantised(x, w["clip"], signed_steps(self._config.edge_bits), signed=True)

    def convolved(
        self, x: Numbers, w: LayerWeights, *, stride: int = 1, dilation: int = 1, edge: bool = False
    ) -> Numbers:
        """See `QuantisedArithmetic`."""
        steps = signed_steps(self._weight_bits(edge=edge))
        kernel = quantised(w["kernel"], w["weight_clip"], steps, signed=True)
        cells = self._noisy(kernel.values, self._noise.weights, kernel.step, edge=edge)
        applied = self._noisy(x.values, self._noise.activations, x.step, edge=edge)
        return Numbers(_convolution(_padded(applied, w, dilation, 0), cells, stride, dilation), kernel.step * x.step)

    def activated(self, terms: Sequence[Numbers], w: LayerWeights, *, edge: bool = False) -> Numbers:
        """See `QuantisedArithmetic`."""
        total = sum((term.values for term in terms[1:]), start=terms[0].values)
        steps = unsigned_steps(self._bits(edge=edge))
        read = self._noisy(total, self._noise.converter, jnp.exp(w["clip"]) / steps, edge=edge)
        return quantised(read, w["clip"], steps, signed=False)

    def pooled(self, x: Numbers) -> Numbers:
        """See `QuantisedArithmetic`."""
        return Numbers(jnp.mean(x.values, axis=_positions(x.values), keepdims=True), x.step)


class ClipsFromBatch(FakeQuantised):
    """As `FakeQuantised`, and sets every clip it comes to from the numbers it sees: where training starts.

    `spread` standard deviations: of a Gaussian, 3 clip 0.3 % of both tails.
    """

    def __init__(self, config: LowBitConfig, *, spread: float = 3.0) -> None:
        super().__init__(config)
        self._spread = spread

    def entered(self, x: jax.Array, w: LayerWeights) -> Numbers:
        """See `QuantisedArithmetic`; the clip is the largest."""
        w["clip"] = jnp.log(jnp.max(jnp.abs(x)))
        return super().entered(x, w)

    def convolved(
        self, x: Numbers, w: LayerWeights, *, stride: int = 1, dilation: int = 1, edge: bool = False
    ) -> Numbers:
        """See `QuantisedArithmetic`."""
        w["weight_clip"] = jnp.log(self._spread * jnp.std(w["kernel"]))
        return super().convolved(x, w, stride=stride, dilation=dilation, edge=edge)

    def activated(self, terms: Sequence[Numbers], w: LayerWeights, *, edge: bool = False) -> Numbers:
        """See `QuantisedArithmetic`."""
        total = sum((term.values for term in terms[1:]), start=terms[0].values)
        w["clip"] = jnp.log(self._spread * jnp.sqrt(jnp.mean(jnp.square(total))))
        return super().activated(terms, w, edge=edge)


class IntegerOnly(_Noisy):
    """Inference: codes, their products summed in i32. With noise, which is no integer, codes are floats in the products.

    `held_in` is the type of all codes and products; by default each has the narrowest that holds it, and two of a product
    that differ meet in the wider one.
    """

    def __init__(
        self,
        config: LowBitConfig,
        *,
        noise: Noise = NOISELESS,
        key: jax.Array | None = None,
        held_in: DTypeLike | None = None,
    ) -> None:
        super().__init__(config, noise, key)
        self._held_in = held_in

    def _type(self, bits: int) -> DTypeLike:
        return self._held_in or storage(bits)

    def entered(self, x: jax.Array, w: LayerWeights) -> Numbers:
        """See `QuantisedArithmetic`."""
        steps = signed_steps(self._config.edge_bits)
        codes = jnp.clip(jnp.round(x / w["step"]), -steps, steps)
        return Numbers(codes.astype(self._type(self._config.edge_bits)), w["step"])

    def convolved(
        self, x: Numbers, w: LayerWeights, *, stride: int = 1, dilation: int = 1, edge: bool = False
    ) -> Numbers:
        """See `QuantisedArithmetic`."""
        kernel = w["kernel"]
        if self._noise.in_products and not edge:
            # As in training: a zero applies nothing to its cells, whatever they hold, so that codes are taken from their zero
            # (`offset` is that of cells without noise), and what pads the input has no noise.
            applied = x.values.astype(jnp.float32) - x.zero
            cells = self._noisy(kernel.astype(jnp.float32), self._noise.weights, 1.0, edge=edge)
            applied = self._noisy(applied, self._noise.activations, 1.0, edge=edge)
            sums = _convolution(_padded(applied, w, dilation, 0), cells, stride, dilation)
        else:
            taken = _padded(x.values, w, dilation, x.zero)
            wide = max((taken.dtype, kernel.dtype), key=_bits)
            taken, kernel = taken.astype(wide), kernel.astype(wide)
            sums = _convolution(taken, kernel, stride, dilation, jnp.int32) + w["offset"]
        return Numbers(sums, x.step * w["weight_step"])

    def activated(self, terms: Sequence[Numbers], w: LayerWeights, *, edge: bool = False) -> Numbers:
        """See `QuantisedArithmetic`."""
        bits = self._bits(edge=edge)
        steps, zero = unsigned_steps(bits), -(2 ** (bits - 1))
        scaled = [(term.values.astype(jnp.float32) - term.zero) * (term.step / w["step"]) for term in terms]
        total = self._noisy(sum(scaled[1:], start=scaled[0]), self._noise.converter, 1.0, edge=edge)
        codes = jnp.clip(jnp.round(total), 0, steps) + zero
        return Numbers(codes.astype(self._type(bits)), w["step"], zero)

    def pooled(self, x: Numbers) -> Numbers:
        """See `QuantisedArithmetic`."""
        axes = _positions(x.values)
        count = 1
        for axis in axes:
            count *= x.values.shape[axis]
        sums = jnp.sum(x.values.astype(jnp.int32), axis=axes, keepdims=True) - count * x.zero
        return Numbers(sums, x.step / count)


def integer_layer(
    w: LayerWeights, config: LowBitConfig, *, edge: bool, zero: int, held_in: DTypeLike | None = None
) -> LayerWeights:
    """A trained layer as `IntegerOnly` takes it; `zero` is the code of zero in what comes in."""
    bits = config.edge_bits if edge else config.weight_bits
    steps = signed_steps(bits)
    kernel = quantised(w["kernel"], w["weight_clip"], steps, signed=True)
    codes = jnp.round(kernel.values / kernel.step).astype(jnp.int32)
    offset = -zero * jnp.sum(codes, axis=tuple(range(codes.ndim - 1)))
    return {"kernel": codes.astype(held_in or storage(bits)), "weight_step": kernel.step, "offset": offset}


def _bits(dtype: Any) -> int:
    return int("".join(filter(str.isdigit, str(dtype))))


def _positions(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(1, x.ndim - 1))


def _padded(x: jax.Array, w: LayerWeights, dilation: int, zero: int) -> jax.Array:
    """The input with `zero` around it."""
    sides = [(0, 0), *((dilation * (size // 2),) * 2 for size in w["kernel"].shape[:-2]), (0, 0)]
    return jnp.pad(x, sides, constant_values=zero) if any(low for low, _ in sides) else x


def _convolution(
    x: jax.Array, kernel: jax.Array, stride: int, dilation: int, summed_in: DTypeLike | None = None
) -> jax.Array:
    spatial = "HW"[: x.ndim - 2]
    names = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    found: Any = jax.lax.conv_general_dilated(
        x, kernel, (stride,) * len(spatial), "VALID", rhs_dilation=(dilation,) * len(spatial), dimension_numbers=names,
        preferred_element_type=summed_in,
    )  # fmt: skip
    return found if isinstance(found, jax.Array) else jnp.asarray(found)
