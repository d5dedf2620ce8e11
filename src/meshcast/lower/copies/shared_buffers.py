"""Which of its operands a kernel may write its results over: XLA:GPU's FusionCanShareBufferHint (alias_info.cc)."""

from __future__ import annotations

from meshcast.lower.kernel import Kernel, KernelKind

_BY_ELEMENTS = frozenset({KernelKind.LOOP_FUSION, KernelKind.REDUCTION})
_FACTORS = 2  # a product's first operands


def writes_over(kernel: Kernel, value: int, result: int) -> bool:
    """Whether a kernel may write a result where a value lies that it reads.

    It may if the value is read element by element, but for reductions, which are done first, and leads to that result. Other
    results may need it as well. A value that a gather takes for its indices is read elsewhere: both bounds of a binary search are
    copied in every turn. What a product's epilogue adds is read by elements: gradients of weights that a loop's turns add up lie
    in one place.
    """
    if value in kernel.updates:
        return True
    product = kernel.kind is KernelKind.GEMM
    if not (product or kernel.kind in _BY_ELEMENTS) or value not in kernel.reads or result not in kernel.writes:
        return False
    place = kernel.reads.index(value)
    if product and place < _FACTORS:
        return False
    if kernel.sources and place not in kernel.sources[kernel.writes.index(result)]:
        return False
    return place not in kernel.rearranged
