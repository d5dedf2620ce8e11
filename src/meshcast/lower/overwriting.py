"""Which of its operands a kernel may write its results over: XLA:GPU's FusionCanShareBufferHint (alias_info.cc)."""

from __future__ import annotations

from meshcast.lower.kernel import Kernel, KernelKind

_BY_ELEMENTS = frozenset({KernelKind.LOOP_FUSION, KernelKind.REDUCTION})


def writes_over(kernel: Kernel, value: int, result: int) -> bool:
    """Whether a kernel may write a result where a value lies that it reads.

    It may if the value is read element by element, but for reductions, which are done first, and leads to that result. Other
    results may need it as well.
    """
    if not leads_over(kernel, value, result):
        return False
    return value in kernel.updates or kernel.reads.index(value) not in kernel.rearranged


def leads_over(kernel: Kernel, value: int, result: int) -> bool:
    """The same whether or not it is read element by element.

    What a loop carries is judged by this: passes that read its old value elsewhere, too, are fewer in XLA's kernels than in ours,
    and both of two measured recursions (CTC losses) have no copy there.
    """
    if value in kernel.updates:
        return True
    if kernel.kind not in _BY_ELEMENTS or value not in kernel.reads or result not in kernel.writes:
        return False
    return not kernel.sources or kernel.reads.index(value) in kernel.sources[kernel.writes.index(result)]
