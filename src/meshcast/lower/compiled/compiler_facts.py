"""What a real compiler says of a program besides its kernels: its memory, who it is and how long it took, what does not fit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledMemory:
    """Bytes of one device's buffers as the compiler assigned them."""

    arguments: int
    outputs: int
    temporaries: int
    aliased: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerRun:
    """Who compiled a program, and how long that took.

    Attributes:
        release: The compiler.
        seconds: What compiling took; None where an older version of ours kept the result without.
        kept: Whether the result was kept from an earlier run.
    """

    release: str
    seconds: float | None
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """Bytes that the compiler wanted and had, where a program does not fit."""

    demand: int
    bound: int
