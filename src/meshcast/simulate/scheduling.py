"""`Scheduling`: what a run's scheduler may do, and how many collectives may be under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from meshcast.base import UsageError

Scheduler = Literal["serial", "program", "latency-hiding", "ideal"]
SCHEDULERS: tuple[str, ...] = get_args(Scheduler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How steps are put in order, and on how many channels collectives run.

    Attributes:
        scheduler: `serial`: nothing overlaps. `program`: every stream keeps the program's order. `latency-hiding`: steps
            are moved where their data allows it, so that collectives start early and independent work stands behind
            them. `ideal`: a bound, in which a block's collectives run beside all of its compute, whatever they need.
        channels: Collectives that can be under way at once: 0 gives every group of devices a channel of its own (as
            NCCL's communicators have streams), otherwise groups share so many in turn; 1 is XLA:GPU's default.
        gathers: All-gathers whose results may wait for their first use at once, which bounds the memory that they
            take; 0 for no bound.
    """

    scheduler: Scheduler = "latency-hiding"
    channels: int = 0
    gathers: int = 0

    @property
    def hides_latency(self) -> bool:
        """Whether exchanges are started before the program's order has them; a compiler is asked for no more than that."""
        return self.scheduler in ("latency-hiding", "ideal")

    def __post_init__(self) -> None:
        if self.scheduler not in SCHEDULERS:
            raise UsageError(
                f"no scheduler {self.scheduler!r}", where="--scheduler", fix="one of " + ", ".join(SCHEDULERS)
            )
        if self.channels < 0:
            raise UsageError(f"{self.channels} channels", where="--channels", fix="0 (one for each group) or more")
        if self.gathers < 0:
            raise UsageError(f"{self.gathers} gathers in flight", where="--overlap", fix="0 (no bound) or more")
        if self.gathers and self.scheduler != "latency-hiding":
            raise UsageError(
                f"the scheduler {self.scheduler!r} does not look at how many gathers are in flight",
                where="--overlap",
                fix="leave gathers out, or use --scheduler latency-hiding",
            )
