"""Whose kernels a prediction stands on: who compiled them, or how far modelled ones usually are from the real compiler's."""

from __future__ import annotations

from dataclasses import dataclass

# Behind the fidelity, and of changes that were predicted.
LOWERING_NOTES = {"modelled": "", "compiled": ", XLA's own kernels", "given": ", kernels as given"}
CHANGED_BY = {"modelled": "", "compiled": " and modelled kernels", "given": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledBy:
    """Who compiled a program.

    Attributes:
        release: The compiler.
        seconds: What compiling took; None where that is not known any more.
        kept: Whether the result was kept from an earlier run.
    """

    release: str
    seconds: float | None
    kept: bool

    def rows(self) -> list[tuple[str, str]]:
        """For people: one line."""
        took = f" in {self.seconds:.1f} s" if self.seconds is not None else ""
        return [("compiled", f"by {self.release}{took}{', kept from an earlier run' if self.kept else ''}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualDistance:
    """How far modelled kernels are from the real compiler's, on programs that nothing was fitted to.

    Attributes:
        kernels: The median error of launches, as a share.
        hbm_bytes: Of bytes moved.
        peak_memory: Of peak memory.
        programs: How many programs.
        source: Where the figures come from.
        fix: The command that brings the compiler; empty where it is there.
    """

    kernels: float
    hbm_bytes: float
    peak_memory: float
    programs: int
    source: str
    fix: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """For people: one line."""
        usual = f"{self.kernels:.0%} in number, {self.hbm_bytes:.0%} in bytes, {self.peak_memory:.0%} in peak memory"
        return [
            (
                "",
                f"modelled kernels: usually off XLA's own by {usual}"
                + (f"; for XLA's own kernels: {self.fix}" if self.fix else ""),
            )
        ]
