"""Kernels behind the compute steps of a trace.

Traces of ours list their kernels with shapes and types, and nodes name them: those are estimated as the program's own. Of
other traces a node says how many operations it does and how many bytes it moves; so it is estimated as a kernel of declared
cost, like a custom call.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache

from meshcast.base import InputError
from meshcast.chakra import KERNEL, KERNELS, ChakraTrace, unpacked_kernels
from meshcast.estimate import kernel_from_json
from meshcast.jobs.traced.attributes import Attributes
from meshcast.jobs.traced.steps import TraceStep
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import DTYPE_BITS

UNKNOWN_DTYPE = "bf16"  # what products of today's models are in, where a trace does not say
KEPT = 1 << 16  # kernels that are kept as values


def kernel_texts(trace: ChakraTrace) -> tuple[str, ...]:
    """The kernels that a trace lists, each as a text of JSON; none where it is not ours, or too coarse for them.

    Raises:
        InputError: They are no list of kernels.
    """
    listed = trace.metadata.get(KERNELS, b"")
    if not listed:
        return ()
    what, fix = f"the metadata's {KERNELS!r}", "export the trace again with this version"
    if not isinstance(listed, bytes):
        raise InputError(f"{what} is {listed!r:.40}, not bytes", where=trace.where, fix=fix)
    try:
        texts = tuple(json.dumps(each) for each in unpacked_kernels(listed))
    except ValueError as error:
        raise InputError(f"{what} {error}", where=trace.where, fix=fix) from None
    for number, text in enumerate(texts):
        try:
            _kernel(text, "")
        except InputError as error:
            raise InputError(f"kernel {number} of {what}: {error.message}", where=trace.where, fix=fix) from None
    return texts


def with_kernels(steps: tuple[TraceStep, ...], trace: ChakraTrace) -> tuple[TraceStep, ...]:
    """Steps of a trace with the kernels that it lists.

    A node whose operations or bytes are not those of its kernel was changed, and is what it says itself.

    Raises:
        InputError: A node names a kernel that is not listed.
    """
    texts = kernel_texts(trace)
    if not texts:
        return steps
    return tuple(_with_kernel(step, Attributes(trace, index), texts) for index, step in enumerate(steps))


def _with_kernel(step: TraceStep, said: Attributes, texts: tuple[str, ...]) -> TraceStep:
    if step.does != "compute" or KERNEL not in said.node.attributes:
        return step
    number = said.whole(KERNEL)
    if number >= len(texts):
        raise said.error(f"{KERNEL} is {number}, and the metadata lists {len(texts)}", "export the trace again")
    kernel = _kernel(texts[number], "")
    same = declared(*work_of(kernel, step.repeat)) == (step.flops, step.bytes)
    return replace(step, kernel=texts[number]) if same else step


def work_of(kernel: Kernel, repeat: int) -> tuple[float, int]:
    """Operations and bytes of so many launches of a kernel."""
    flops = kernel.matrix_flops + kernel.vector_flops + kernel.transcendentals
    return flops * repeat, (kernel.read_bytes + kernel.written_bytes) * repeat


def declared(flops: float, moved: int) -> tuple[int, int]:
    """The work as nodes declare it in `num_ops` and `tensor_size`: whole numbers, never 0, as readers divide by them."""
    return max(1, round(flops)), max(1, moved)


@lru_cache(maxsize=KEPT)
def _kernel(text: str, name: str) -> Kernel:
    return replace(kernel_from_json(json.loads(text)), name=name)


def kernel_of(step: TraceStep) -> Kernel:
    """One launch of a compute step as a kernel."""
    if step.kernel:
        return _kernel(step.kernel, step.name)
    matrix = step.flops if step.matrix_flops is None else step.matrix_flops
    return Kernel(
        name=step.name, kind=KernelKind.CUSTOM, dtype=step.dtype if step.dtype in DTYPE_BITS else UNKNOWN_DTYPE,
        matrix_flops=matrix / step.repeat, vector_flops=max(0.0, step.flops - matrix) / step.repeat,
        read_bytes=step.bytes // step.repeat,
    )  # fmt: skip
