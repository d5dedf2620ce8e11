"""How far steps of traces that are timed again came out from predictions of their programs on the same device.

`python benchmarks/retiming.py` measures them, over eleven models and plans and devices of both kinds, and fails where one is
beyond what stands here: retimed over predicted, less one, rounded outwards to whole per cents (`docs/traces.md` has the table).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least and the greatest difference, as shares of the predicted step."""

    low: float
    high: float

    def holds(self, difference: float) -> bool:
        """Whether a difference lies between them."""
        return self.low <= difference <= self.high

    @property
    def words(self) -> str:
        """For people: "from 23 % below to 14 % above"."""
        if self.high <= 0:
            return f"{-100 * self.high:.0f} to {-100 * self.low:.0f} % below"
        if self.low >= 0:
            return f"{100 * self.low:.0f} to {100 * self.high:.0f} % above"
        return f"from {-100 * self.low:.0f} % below to {100 * self.high:.0f} % above"


# Short pipelines are lowest: a rank's programs share one clock, and have one each in a prediction (`jobs.traced.clocks`).
WITH_SHAPES = Bound(low=-0.03, high=0.03)
TO_TPU = Bound(low=-0.23, high=0.14)
FROM_TPU = Bound(low=-0.81, high=0.02)  # such a trace knows nothing of a host that launches kernels
WITHOUT_SHAPES = Bound(low=-0.37, high=0.22)


def bound_of(*, shaped: bool, recorded: str, device: str) -> Bound:
    """How far off a step may be.

    Args:
        shaped: Whether the trace lists its kernels.
        recorded: The kind of device that it is of: `gpu` or `tpu`.
        device: The kind that it is timed on.
    """
    if not shaped:
        return WITHOUT_SHAPES
    if recorded == device:
        return WITH_SHAPES
    return TO_TPU if device == "tpu" else FROM_TPU
