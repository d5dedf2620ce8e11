"""Whose code runs the kernels of a schedule: calls of libraries, and products that XLA compiles by Triton."""

from __future__ import annotations

from meshcast.hardware import Device
from meshcast.lower import Kernel, KernelKind, LoweredProgram, is_tiny, sorted_by_radix
from meshcast.simulate import calls_cublas
from meshcast.workload import (
    DTYPE_BITS,
    Attention,
    Convolution,
    Factorisation,
    Gemm,
    SortGeometry,
    Transform,
)

LIBRARIES = ("cuBLAS", "Triton", "cuDNN", "cuFFT", "cuSOLVER", "CUB")
_CALL = "custom_call:"  # how the name of a library's call begins in compiled programs

Calls = dict[str, int]  # library -> calls in a step


def library_calls(lowered: LoweredProgram, device: Device, *, tuned: bool = True) -> Calls:
    """Calls of a step by library.

    Args:
        lowered: The kernels.
        device: Whose libraries they are.
        tuned: Whether cuBLAS and Triton were timed against each other; False: cuBLAS has all products of a modelled program.
    """
    found: Calls = {}
    for kernel, count in lowered.schedule.walk():
        library = library_of(kernel, device, given=lowered.lowering != "modelled", tuned=tuned)
        if library is not None:
            found[library] = found.get(library, 0) + count
    return found


def library_of(kernel: Kernel, device: Device, *, given: bool, tuned: bool = True) -> str | None:
    """The library that a kernel is a call of; None for XLA's own.

    Args:
        kernel: The kernel.
        device: Where it runs.
        given: Whether a compiler made it and says what it calls.
        tuned: See `library_calls`.
    """
    match kernel.geometry:
        case Gemm() as shape if kernel.kind is KernelKind.GEMM and not is_tiny(shape):
            called = any(name.startswith(_CALL) for name in kernel.ops)
            by_library = called if given else calls_cublas(kernel, shape, device, tuned=tuned)
            return "cuBLAS" if by_library else "Triton"
        case Convolution() | Attention():
            return "cuDNN"
        case Transform():
            return "cuFFT"
        case Factorisation():
            return "cuSOLVER"
        case SortGeometry() as shape if sorted_by_radix(shape, DTYPE_BITS.get(kernel.dtype, 32)):
            return "CUB"
    return None
