"""SCALE-Sim TPU's published latency model of a TPU v4, to compare ours with: lines through measured latencies.

    product:      t = slope * cycles + start, by the largest of m, n, k: below 128, below 1024, or more (`systolic_lines`)
    elementwise:  t = slope * elements + start, by function, for vectors and for matrices
    norms:        t = slope * elements + start

with the shape rule for elementwise functions: ranks above 2 are a matrix of their innermost dimension; where one of its two
sides is a multiple of 128 and the other, above 128, is not, that other is rounded up to one. After Dang, Raj, Man, Tong and
Krishna, "SCALE-Sim TPU" (arXiv 2603.22535, 2026), with the coefficients of the authors' code (`data/scalesim_tpu.toml`).

What it does not know: batches of products (each is timed as one of its own), convolutions (each is timed as the product of its
windows, `estimate.products`; a fitted line of words counts the words that the windows share once), reductions, data movement,
types (all its data is float16), fusion, and any chip but v4, unless lines for its products are fitted to measurements
(`meshcast calibrate --systolic`). A function that it has no line for is timed as an addition, as the authors do; a fusion of
several as the sum of its functions, since the model knows none. All of these are approximations, and count as answers where the
simulator was named (`estimate.chain`).
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources

import numpy as np

from meshcast.estimate.energy import joules_per_byte
from meshcast.estimate.estimator import Estimates, Origin, Support
from meshcast.estimate.products import ArrayProduct, product_of
from meshcast.estimate.profiled.estimator import light_beside
from meshcast.estimate.profiled.reference import reference_model
from meshcast.estimate.systolic_lines import FittedLines, LatencyLine, ProductLines, ProductTime
from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Convolution

FALLBACK = "add"
SPANNED = 1.645  # deviations to either end of an interval
_MICRO = 1e-6
# Functions as the source writes them (`kernel_functions.py`), by the arithmetic ops that JAX leaves of them.
_COMPOSED: Mapping[str, tuple[str, ...]] = {
    "relu": ("maximum",),
    "sigmoid": ("negate", "exponential", "add", "divide"),
    "leaky_relu": ("multiply", "maximum"),
    "elu": ("compare", "exponential", "subtract", "multiply", "select"),
    "selu": ("compare", "exponential", "subtract", "multiply", "multiply", "select"),
    "prelu": ("compare", "multiply", "select"),
    "binary_step": ("compare", "select"),
    "linear": ("multiply", "add"),
}
_SINGLE = {"logistic": "sigmoid", **{name: name for name in ("add", "subtract", "multiply", "divide", "tanh")}}
_RECOGNISED: Mapping[tuple[str, ...], str] = {
    **{(op,): name for op, name in _SINGLE.items()},
    **{tuple(sorted(ops)): name for name, ops in _COMPOSED.items()},
}
# Ops of a fusion that no engine computes.
_FREE = frozenset({"constant", "broadcast_in_dim", "reshape", "convert", "iota", "bitcast_convert", "copy", "slice"})
_ROOTS = frozenset({"sqrt", "rsqrt"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """The lines of the paper's code."""

    target: str
    dtype: str
    products: ProductLines
    vectors: Mapping[str, LatencyLine]
    matrices: Mapping[str, LatencyLine]
    norms: Mapping[str, LatencyLine]
    errors: Mapping[str, float]  # geometric means of ratios to measurements, less one, by kind

    def elementwise_us(self, function: str, shape: Sequence[int]) -> float:
        """A function of every element; one without a line is timed as an addition."""
        lines = self.vectors if len(shape) < 2 else self.matrices
        return lines.get(function, lines[FALLBACK]).at(self.counted_elements(shape))

    def counted_elements(self, shape: Sequence[int]) -> int:
        """Elements after the shape rule."""
        if len(shape) < 2:
            return math.prod(shape)
        rows, columns = math.prod(shape[:-1]), shape[-1]
        if rows % 128 == 0 and columns % 128 and columns > 128:
            columns = -(-columns // 128) * 128
        elif columns % 128 == 0 and rows % 128 and rows > 128:
            rows = -(-rows // 128) * 128
        return rows * columns

    def norm_us(self, function: str, elements: int) -> float:
        """A normalisation as a whole: its reductions and what follows them."""
        return self.norms[function].at(elements)


@functools.cache
def published_model() -> PublishedModel:
    """The model with the coefficients that were published."""
    text = resources.files("meshcast.estimate").joinpath("data/scalesim_tpu.toml").read_text()
    data = tomllib.loads(text)

    def line(pair: Sequence[float]) -> LatencyLine:
        return LatencyLine(slope=pair[0], start=pair[1])

    return PublishedModel(
        target=data["source"]["target"],
        dtype=data["source"]["dtype"],
        products=ProductLines(
            rows=data["array"]["side"],
            columns=data["array"]["side"],
            lines=tuple((p.get("below", math.inf), line((p["slope"], p["start"]))) for p in data["product"]),
        ),
        vectors={name: line(pairs["vector"]) for name, pairs in data["elementwise"].items()},
        matrices={name: line(pairs["matrix"]) for name, pairs in data["elementwise"].items()},
        norms={name: line(pair) for name, pair in data["normalisation"].items()},
        errors=data["error"],
    )


class ScaleSimTpu:
    """The published model as an estimator: fidelity `simulated`, simulator `scalesim-tpu`.

    Args:
        fitted: Lines for products that were fitted to measurements of another device, or to more of them; what the published
            model has beside products is then for the chip that it was fitted to alone.
    """

    name = "scalesim-tpu"
    fidelity = "simulated"

    def __init__(self, fitted: FittedLines | None = None) -> None:
        self._fitted = fitted
        self._products = fitted.products if fitted is not None else published_model().products

    def supports(self, kernel: Kernel, device: Device) -> Support:
        """Products, convolutions and elementwise functions on a TPU v4, or products on a device with lines of its own.

        Other types than float16, batches, convolutions and fusions are answered approximately.
        """
        model = published_model()
        cores = device.tensor_cores
        published = cores is not None and cores.target == model.target
        product = product_of(kernel.geometry)
        if self._fitted is not None and self._fitted.device == device.name and product is not None:
            return _product_support(kernel, product) or Support(level="yes")
        if not published:
            return Support(level="no", reason=f"its lines are fitted to a TPU {model.target}, not to {device.name}")
        if product is not None:
            if (support := _product_support(kernel, product)) is not None:
                return support
        elif kernel.kind is KernelKind.REDUCTION and _norm(kernel):
            pass
        elif kernel.kind is not KernelKind.LOOP_FUSION:
            return Support(level="no", reason=f"it has no line for a {kernel.kind.value}")
        elif not _arithmetic(kernel):
            return Support(level="no", reason="it has no line for moving data")
        elif _function(kernel) is None:
            return Support(level="approximate", reason="functions without a line of their own, timed as additions")
        if kernel.dtype != model.dtype:
            return Support(level="approximate", reason=f"its lines are fitted to {model.dtype} alone")
        return Support(level="yes")

    def estimate(self, kernels: Sequence[Kernel], device: Device) -> Estimates:
        """Times by the lines, between `t exp(-q s)` and `t exp(q s)`, see `_spread`; neither is faster than light."""
        light = light_beside(kernels, device, reference_model(device, 0.0).estimate(kernels, device))
        times = np.maximum([self._microseconds(kernel) * _MICRO for kernel in kernels], light)
        starts = np.array([self._start(kernel) * _MICRO for kernel in kernels], dtype=np.float64)
        moved = np.array([kernel.read_bytes + kernel.written_bytes for kernel in kernels], dtype=np.float64)
        spread = np.array([self._spread(kernel, device) for kernel in kernels], dtype=np.float64)
        by_words = np.array([_is_by_words(self._timed(kernel)) for kernel in kernels], dtype=bool)
        return Estimates(
            time=times,
            low=np.maximum(times / spread, light),
            high=times * spread,
            compute_time=np.where(by_words, 0.0, times - starts),
            memory_time=np.where(by_words, times - starts, 0.0),
            overhead=starts,
            energy=moved * joules_per_byte(device),
            origin=tuple(Origin.SIMULATED for _ in kernels),
        )

    def _spread(self, kernel: Kernel, device: Device) -> float:
        """The ratio of an interval's end to the time: `exp(q s)`, nine of ten.

        `s` follows from the mean error `e` of the lines, as of a normal distribution of logarithms: `s = ln(1 + e) sqrt(pi / 2)`.
        What the lines are used for beyond what they were fitted to (convolutions, batches, other types) is taken to miss by that
        much once more: `2 s`, ours.
        """
        errors = published_model().errors
        if product_of(kernel.geometry) is not None:
            known = self._fitted.error if self._fitted is not None else None
            error = errors["product"] if known is None else known
        else:
            error = errors["normalisation" if kernel.kind is KernelKind.REDUCTION else "elementwise"]
        beyond = 2 if self.supports(kernel, device).level != "yes" else 1
        return math.exp(SPANNED * beyond * math.log1p(error) * math.sqrt(math.pi / 2))

    def _microseconds(self, kernel: Kernel) -> float:
        model, timed = published_model(), self._timed(kernel)
        if timed is not None:
            return timed.microseconds
        norm = _norm(kernel) if kernel.kind is KernelKind.REDUCTION else None
        if norm:
            return model.norm_us(norm, kernel.elements)
        known = _function(kernel)
        functions = [known] if known else [_SINGLE.get(name, name) for name in _arithmetic(kernel)]
        return sum(model.elementwise_us(function, kernel.shape or (kernel.elements,)) for function in functions)

    def _timed(self, kernel: Kernel) -> ProductTime | None:
        """All products of a kernel, one after the other; None where it is none."""
        geometry, product = kernel.geometry, product_of(kernel.geometry)
        if product is None:
            return None
        moved = _words(geometry) / product.count if isinstance(geometry, Convolution) else None
        one = self._products.timed(product.m, product.n, product.k, moved=moved)
        return replace(one, microseconds=product.count * one.microseconds, start=product.count * one.start)

    def _start(self, kernel: Kernel) -> float:
        """What a kernel of no size would take: the part of its time that does not grow."""
        model, timed = published_model(), self._timed(kernel)
        if timed is not None:
            return timed.start
        if kernel.kind is KernelKind.REDUCTION:
            return model.norms[_norm(kernel) or "layer_norm"].start
        return min(self._microseconds(kernel), model.matrices[FALLBACK].start)


def _product_support(kernel: Kernel, product: ArrayProduct) -> Support | None:
    """What is to be said of a product that the lines do not know as it is."""
    if isinstance(kernel.geometry, Convolution):
        return Support(level="approximate", reason="a convolution, which it times as the product of its windows")
    if product.count > 1:
        return Support(level="approximate", reason="a batch of products, which it times one by one")
    return None


def _is_by_words(timed: ProductTime | None) -> bool:
    return timed is not None and timed.by_words


def _words(geometry: Convolution) -> int:
    """Elements of a convolution's input, filter and result, each once."""
    taps = geometry.in_channels // geometry.feature_groups * math.prod(geometry.kernel)
    results = geometry.batch // geometry.batch_groups * math.prod(geometry.out_spatial)
    inputs = geometry.batch * geometry.in_channels * math.prod(geometry.in_spatial)
    return inputs + geometry.out_channels * (taps + results)


def _arithmetic(kernel: Kernel) -> list[str]:
    """The short names of its ops that compute something."""
    names = [name.rpartition(".")[2] for name in kernel.ops]
    return [name for name in names if name not in _FREE]


def _function(kernel: Kernel) -> str | None:
    """The function with a line of its own that a fusion computes."""
    return _RECOGNISED.get(tuple(sorted(_arithmetic(kernel))))


def _norm(kernel: Kernel) -> str | None:
    """The normalisation that a fusion of reductions and what follows them is: one with a mean taken off, or one without."""
    counts = Counter(_arithmetic(kernel))
    if not counts["reduce"] or not any(counts[root] for root in _ROOTS):
        return None
    return "layer_norm" if counts["subtract"] else "rms_norm"
