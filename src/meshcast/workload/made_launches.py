"""Launches that a compiler or a framework made, and a step as a framework runs it op by op."""

from __future__ import annotations

from dataclasses import dataclass

CODE_CLOCK_HZ = 1.98e9  # of the H200 on which the seconds of shapes were measured: on others they take as many cycles


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeShape:
    """What the shape of a kernel's code makes of the device's rates."""

    share: float = 1.0  # of the rate that memory gives to well-shaped code, what code like it gets
    extra: float = 0.0  # seconds that it takes beside that, at `CODE_CLOCK_HZ`
    block_cycles: float = 0.0  # of the device's clock that its slowest block takes, whatever memory gives
    wait_cycles: float = 0.0  # of that clock that it takes beside either


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLaunch:
    """The launch that a compiler put an op into: ops that follow each other with equal launches are one kernel."""

    name: str  # of the instruction in the compiler's own program
    fusion: str = ""  # XLA's kind of fusion: kLoop, kInput, kCustom; nothing for an op on its own
    emitter: str = ""  # who writes a kCustom fusion's code: __triton, __triton_nested_gemm_fusion, ...
    tile: int = 0  # elements that a program of Triton's has, each side rounded up to a power of two; 0: it is none
    warps: int = 0  # that share them
    sides: tuple[int, ...] = ()  # of the tile, as they were told
    blocking: bool = False  # a collective or copy that the compute stream waits for
    prefetched: bool = False  # a copy that the previous run of the program makes
    on_chip: frozenset[int] = frozenset()  # positions of its results that lie outside of main memory
    cycles: float | None = None  # that the compiler expects it to take
    code: CodeShape | None = None  # of a framework's own kernel, where no compiler of XLA's made it


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkStep:
    """A step as a framework runs it: its allocator's bytes at the worst moment, and how often its host does what."""

    arguments: int  # bytes that are there before the step
    temporaries: int  # bytes that its allocator hands out at most, beside them
    host: tuple[tuple[int, ...], ...] = ()  # before each launch, how often the host does each of `base.HOST_WORK`
