"""What kind of work a measured kernel does, by the names that it and what launched it have.

Names are those of XLA's instructions and fusions, cuBLAS, cuDNN, CUTLASS, NCCL, Triton and PyTorch's own kernels. The instruction
is asked first, then PyTorch's operator, then the kernel: a convolution may run as a matrix product, and is still one.
"""

from __future__ import annotations

import re

from meshcast.evidence.profiler.trace import MeasuredKernel

MATMUL, CONVOLUTION, ATTENTION = "matmul", "convolution", "attention"
ELEMENTWISE, REDUCTION, COPY = "element-wise", "reduction", "copy"
INDEXED, SORT, OTHER = "gather and scatter", "sort", "other"
COLLECTIVE = "collective: "
IDLE = "idle and host gaps"

_MEMORY = re.compile(r"^(memcpy|memset|\[cuda mem)", re.IGNORECASE)
_COLLECTIVE_CALL = re.compile(
    r"nccl|rccl|cross_device_reduce|"
    r"^(all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast)",
    re.IGNORECASE,
)
_COLLECTIVE_KINDS = (
    (re.compile(r"reduce.?scatter", re.IGNORECASE), "reduce-scatter"),
    (re.compile(r"all.?reduce|cross_device_reduce", re.IGNORECASE), "all-reduce"),
    (re.compile(r"all.?gather", re.IGNORECASE), "all-gather"),
    (re.compile(r"all.?to.?all", re.IGNORECASE), "all-to-all"),
    (re.compile(r"broadcast", re.IGNORECASE), "collective-broadcast"),
    (re.compile(r"permute|send|recv", re.IGNORECASE), "collective-permute"),
)
# cuDNN's rearrangements around a convolution are copies, whatever instruction or operator they belong to.
_LAYOUT = re.compile(r"nchwTonhwc|nhwcTonchw|nhwcAddPadding|tensorTransform", re.IGNORECASE)
# A fusion without a name of its own says nothing: the kernel's may.
_ANONYMOUS = re.compile(r"^fusion[.\d]*$")
_STRONG = (
    # cuDNN's backward attention runs two small kernels of its own around the large one.
    (re.compile(r"sdpa|flash|fmha|attention|splash|dot_do_o|convert_dq_to", re.IGNORECASE), ATTENTION),
    (re.compile(r"conv(?!ert)|fprop|dgrad|wgrad|winograd|implicit_gemm", re.IGNORECASE), CONVOLUTION),
    (
        re.compile(
            r"gemm|gemv|nvjet|cutlass|cublas|splitk|matmul|^dot|_dot|wgmma|aten::(addmm|mm|bmm|baddbmm|linear|matmul)$",
            re.IGNORECASE,
        ),
        MATMUL,
    ),
)
_WEAK = (
    (re.compile(r"sort|top_?k|radix", re.IGNORECASE), SORT),
    (re.compile(r"gather|scatter|embedding|index_", re.IGNORECASE), INDEXED),
    (
        re.compile(
            r"memcpy|^copy|_copy|dynamic.(update.)?slice|transpose|wrapped_(slice|concatenate|pad|reverse)|^slice|catarray",
            re.IGNORECASE,
        ),
        COPY,
    ),
    (
        re.compile(r"reduce|softmax|norm|arg_?max|nll_loss|gammabeta|cumsum|scan|triton_(red|per)", re.IGNORECASE),
        REDUCTION,
    ),
    (
        re.compile(
            r"elementwise|fusion|wrapped_|multi_tensor|fill|triton_poi|adam|convert|broadcast|loop_", re.IGNORECASE
        ),
        ELEMENTWISE,
    ),
)


def class_of(kernel: MeasuredKernel) -> str:
    """The class of a kernel; `other` where no name says."""
    if is_memory_operation(kernel) or _LAYOUT.search(kernel.name):
        return COPY
    operator = kernel.scope if kernel.scope.startswith(("aten::", "nccl:")) else ""
    instruction = "" if _ANONYMOUS.match(kernel.op) else kernel.op
    names = [name for name in (instruction, operator, kernel.name) if name]
    for name in names:
        if _COLLECTIVE_CALL.search(name):
            return COLLECTIVE + next((kind for pattern, kind in _COLLECTIVE_KINDS if pattern.search(name)), "other")
    for rules in (_STRONG, _WEAK):
        for name in names:
            for pattern, found in rules:
                if pattern.search(name):
                    return found
    return OTHER


def class_of_name(name: str) -> str:
    """The class of a kernel of which the name alone is known."""
    return class_of(MeasuredKernel(name=name, start=0.0, duration=0.0))


def is_collective(name: str) -> bool:
    """Whether a class is one of collectives."""
    return name.startswith(COLLECTIVE)


def is_memory_operation(kernel: MeasuredKernel) -> bool:
    """Whether it is a copy or fill that no kernel runs for."""
    return bool(_MEMORY.match(kernel.name))
