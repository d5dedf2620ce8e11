"""One embedding table: its size, what a sample looks up in it, how it is stored and trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from meshcast.jobs.embedding_tables.distribution import Distribution, Picked

ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f8": 1, "i8": 1}

# Bytes of optimizer state a row of `dim` elements has, in fp32, as FBGEMM's fused optimizers keep it (fbgemm_gpu,
# split_table_batched_embeddings_ops_training.py).
STATE_BYTES = {
    "sgd": (0, 0),
    "rowwise-adagrad": (4, 0),
    "adagrad": (0, 4),
    "rowwise-adam": (4, 4),
    "adam": (0, 8),
}


@dataclass(frozen=True, kw_only=True)
class EmbeddingTable:
    """A table of `rows` by `dim`; a sample picks `pooling` rows of it on average, with a standard deviation of `spread`.

    Attributes:
        pooled: Whether a sample's rows are summed up; else each is handed on by itself, as sequence models take them.
        ways: Shardings that it may take; empty where any will do.
        cached: The share of its rows that the device keeps of a table in host memory (UVM caching); None where all lie on
            devices.
        hits: The share of a batch's different rows that such a cache holds, as FBGEMM counts them; None where that follows from
            its indices.
    """

    name: str
    rows: int
    dim: int
    pooling: float = 1.0
    spread: float = 0.0
    pooled: bool = True
    dtype: str = "f32"
    optimizer: str = "rowwise-adagrad"
    indices: Distribution = field(default_factory=Distribution)
    ways: tuple[str, ...] = ()
    cached: float | None = None
    hits: float | None = None

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return ELEMENT_BYTES[self.dtype]

    def bags(self, batch: float) -> float:
        """Rows that a batch's look-ups give."""
        return batch if self.pooled else batch * self.pooling

    @property
    def row_state_bytes(self) -> int:
        """Bytes of one row's optimizer state."""
        once, each = STATE_BYTES[self.optimizer]
        return once + each * self.dim

    @property
    def weight_bytes(self) -> int:
        """Bytes of all rows."""
        return self.rows * self.dim * self.element_bytes

    @property
    def bytes(self) -> int:
        """Bytes of all rows with their optimizer state."""
        return self.weight_bytes + self.rows * self.row_state_bytes

    @cached_property
    def picked(self) -> Picked:
        """How indices fall on its rows."""
        return self.indices.over(self.rows)
