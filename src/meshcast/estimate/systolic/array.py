"""A systolic array with its scratchpads: the parameters of a SCALE-Sim configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from meshcast.base import UsageError

Dataflow = Literal["ws", "os", "is"]
DATAFLOWS: tuple[str, ...] = get_args(Dataflow)
# Beyond any chip, and what 64-bit cycles and words can be summed over.
MOST_SIDE = 1 << 20
MOST_WORDS = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayBuffer:
    """A double-buffered scratchpad: half of it is in use while the other half is filled or drained.

    Attributes:
        words: Elements that both halves hold.
        bandwidth: Elements a cycle between it and memory.
    """

    words: int
    bandwidth: int

    def __post_init__(self) -> None:
        if max(self.words, self.bandwidth) > MOST_WORDS:
            raise UsageError(
                f"a scratchpad of {self.words:,} words at {self.bandwidth:,} words a cycle",
                fix=f"give {MOST_WORDS:,} at most",
            )
        if self.words < 2 or self.bandwidth < 1:
            raise UsageError(
                f"a scratchpad of {self.words} words at {self.bandwidth} words a cycle cannot be double-buffered",
                fix="give at least 2 words and 1 word a cycle",
            )

    @property
    def active(self) -> int:
        """Words in use: the larger half."""
        return -(-self.words // 2)

    @property
    def spare(self) -> int:
        """Words being filled or drained meanwhile."""
        return self.words - self.active


@dataclass(frozen=True, slots=True, kw_only=True)
class SystolicArray:
    """An array of multiply-add cells between three scratchpads.

    Attributes:
        dataflow: What stays in the cells: weights (`ws`), outputs (`os`) or inputs (`is`).
        estimated_bandwidth: SCALE-Sim's mode CALC: memory delivers operands in time, whatever that takes; only outputs,
            at as many words a cycle as the array has columns, can stall.
    """

    rows: int
    columns: int
    dataflow: Dataflow
    ifmap: ArrayBuffer
    filter: ArrayBuffer
    ofmap: ArrayBuffer
    estimated_bandwidth: bool = False

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise UsageError(f"an array of {self.rows} x {self.columns} cells", fix="give at least one row and column")
        if max(self.rows, self.columns) > MOST_SIDE:
            raise UsageError(
                f"an array of {self.rows:,} x {self.columns:,} cells",
                fix=f"give {MOST_SIDE:,} rows and columns at most",
            )
        if self.dataflow not in DATAFLOWS:
            raise UsageError(f"no dataflow {self.dataflow!r}", where="--dataflow", fix="one of " + ", ".join(DATAFLOWS))

    @property
    def cells(self) -> int:
        """Multiply-adds a cycle."""
        return self.rows * self.columns

    @property
    def drain_bandwidth(self) -> int:
        """Output words a cycle to memory."""
        return self.columns if self.estimated_bandwidth else self.ofmap.bandwidth
