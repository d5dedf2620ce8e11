"""What a matrix product takes at least, whatever is fused into it and wherever its operands lie.

Which elementwise work a lowering fuses into a product, and which of its operands the cache still holds, depend on the
program around it; the sides of the product do not. An estimator that can say so (`product_floor`) is asked about the product
alone, without a byte to move: no kernel with that product is answered by less than the `time`, or the `core_time`, of that
answer.

- `roofline`, time: `max(F / P, V / v, T / t, bytes / W)` is a maximum over terms that only grow.
- `analytical` on GPUs, time: for each tile, `|compute, fetch, M - store|_p + store` with `store <= M` grows with `M` and
  with `store`: the norm grows with each of its terms, and by no more than the term does, so that what `store` takes from the
  third it adds in full. The fastest tile of a kernel without bytes is no slower than its fastest with them. Fused attention
  is a norm of products and bytes, and clears that geometry alone decides.
- `analytical` on TPUs, core time: `t0 + max(mem, longest + (sum - longest) / n)` is never below the longest of its engines,
  which bytes and fused work only add to; of fused attention the blocks that are fastest without bytes are those that keep
  the engines busy for the shortest time.

Of any other estimator products are taken at the speed of light, below which none of the package's own answers: the profiled
one is cut off there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshcast.estimate.chain import EstimatedKernels, KernelEstimate, answering, estimate_each
from meshcast.estimate.estimator import Estimator
from meshcast.estimate.power import Values
from meshcast.estimate.roofline import light_bounds
from meshcast.hardware import Device
from meshcast.lower import CostKey, Kernel, KernelKind
from meshcast.workload import Gemm, Geometry

PRODUCTS = frozenset({KernelKind.GEMM, KernelKind.ATTENTION})


def is_product(kernel: Kernel) -> bool:
    """Whether a kernel multiplies matrices whose sides are known; products with vectors are sums, and not counted."""
    shape = kernel.geometry
    return kernel.kind in PRODUCTS and kernel.matrix_flops > 0 and shape is not None and not is_vector(shape)


def is_vector(shape: Geometry) -> bool:
    """Whether a product is one with a vector."""
    return isinstance(shape, Gemm) and min(shape.m, shape.n) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFloor:
    """What a kernel takes at least.

    Attributes:
        seconds: At the full clock.
        clocked_s: Seconds of them that grow when the clock falls, at least.
        clocked_j: Joules above idle at the full clock that fall with it.
        fixed_j: Joules that do not.
    """

    seconds: float
    clocked_s: float = 0.0
    clocked_j: float = 0.0
    fixed_j: float = 0.0


def least_seconds(
    kernels: Sequence[Kernel], device: Device, estimators: Sequence[Estimator], *, first_named: bool = False
) -> dict[CostKey, float]:
    """Seconds of products at the full clock that no kernel with such a product is answered by less than, by cost key.

    Args:
        kernels: Products (`is_product`).
        device: What they run on.
        estimators: The chain, first the one to ask first.
        first_named: The first estimator was chosen by name.

    Raises:
        UnsupportedError: No estimator answers for one.
    """
    unique = {kernel.cost_key: kernel for kernel in kernels}
    answered = _answered(unique, device, estimators, first_named=first_named)
    found = estimate_each(answered.values(), device, estimators, first_named=first_named)
    floors = _floors(device, estimators)
    least = {key: _seconds(found[bare], floors) for key, bare in answered.items()}
    return least | _by_light({key: kernel for key, kernel in unique.items() if key not in least}, device)


def least_answers(
    kernels: Sequence[Kernel], device: Device, estimators: Sequence[Estimator], own: EstimatedKernels, *,
    first_named: bool = False, values: Values = "random",
) -> dict[CostKey, KernelFloor]:  # fmt: skip
    """What kernels of a program take at least wherever else the same work is done, by cost key.

    Products are asked about as `least_seconds` does it; of what follows the clock no more is claimed than of the kernel itself,
    and of the energy of their bytes what these take that were just touched. Of other kernels the answer is their own with
    everything they touch just touched, where an estimator gives it that knows floors; of the rest nothing is claimed.

    Args:
        kernels: Of a program, none of them a collective.
        device: What they run on.
        estimators: The chain, first the one to ask first.
        own: The answers for the kernels themselves.
        first_named: The first estimator was chosen by name.
        values: What their arrays hold.

    Raises:
        UnsupportedError: No estimator answers for one.
    """
    unique = {kernel.cost_key: kernel for kernel in kernels}
    answered = _answered(unique, device, estimators, first_named=first_named)
    touched = {key: unique[key].with_recency(None) for key in answered}
    asked = (*answered.values(), *touched.values())
    found = estimate_each(asked, device, estimators, first_named=first_named).holding(values)
    floors = _floors(device, estimators)
    least: dict[CostKey, KernelFloor] = {}
    for key, bare in answered.items():
        answer, whole, near = found[bare], own.by_key[key], found[touched[key]]
        seconds = min(_seconds(answer, floors), whole.time)
        clocked = min(answer.clocked * answer.time, whole.clocked * whole.time, seconds)
        joules = min(near.static_energy, whole.static_energy)
        least[key] = KernelFloor(seconds=seconds, clocked_s=clocked, clocked_j=answer.dynamic_energy, fixed_j=joules)
    rest = {key: kernel for key, kernel in unique.items() if key not in least and is_product(kernel)}
    return least | {key: KernelFloor(seconds=seconds) for key, seconds in _by_light(rest, device).items()}


def _answered(
    unique: Mapping[CostKey, Kernel], device: Device, estimators: Sequence[Estimator], *, first_named: bool
) -> dict[CostKey, Kernel]:
    """What is asked in place of each kernel that an estimator answers for which knows floors."""
    return {
        key: bare_product(kernel) if is_product(kernel) else kernel.with_recency(None)
        for key, kernel in unique.items()
        if hasattr(estimators[answering(kernel, device, estimators, first_named=first_named)], "product_floor")
    }


def _floors(device: Device, estimators: Sequence[Estimator]) -> dict[str, str]:
    return {each.name: each.product_floor(device) for each in estimators if hasattr(each, "product_floor")}


def _seconds(answer: KernelEstimate, floors: Mapping[str, str]) -> float:
    return answer.time if floors[answer.estimator] == "time" else answer.core_time


def _by_light(kernels: Mapping[CostKey, Kernel], device: Device) -> dict[CostKey, float]:
    """Seconds of products at the speed of light."""
    fastest = max(1.0, device.clock_hz / device.peak_clock_hz)  # peaks are quoted below the highest clock
    light = light_bounds([bare_product(kernel) for kernel in kernels.values()], device)[0] / fastest
    return dict(zip(kernels, light.tolist(), strict=True))


def bare_product(kernel: Kernel) -> Kernel:
    """The product of a kernel, without what is fused into it and without a byte to move."""
    own = kernel.kind is KernelKind.ATTENTION  # whose exponentials are its own
    return replace(
        kernel,
        read_bytes=0,
        written_bytes=0,
        operand_bytes=(),
        vector_flops=kernel.vector_flops if own else 0.0,
        transcendentals=kernel.transcendentals if own else 0.0,
        on_chip_bytes=0 if kernel.on_chip_bytes is not None else None,
        on_chip_written=0,
        code=None,
        recency=None,
    )
