"""A training step over sharded tables, rank by rank: what each computes, which collectives they meet in, who waits for whom.

Every rank has a stream of kernels; all share the wires, which carry one collective at a time, in the order in which they are
ready: when the last rank has come to them. A step is that of torchrec's pipelined trainer (`TrainPipelineSparseDist`):

- indices of the next batch travel from the beginning of a step on (without the pipeline: of this one, before its look-ups);
- look-ups, then the bottom layers, beside which pooled rows travel; then the other layers forwards and backwards;
- gradients of pooled rows travel beside the bottom layers' backward pass; buckets of dense gradients are reduced as they get
  full, evenly over the backward pass;
- tables are updated when their gradients and the bottom layers are there, the dense part when all buckets are.

Steps follow each other until one takes as long as the one before. A rank that is done with its updates goes on to the next
look-ups, so that a rank with many look-ups and one with long updates are not both waited for, as the formula of `step` has it
that a search is guided by.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from meshcast.jobs.embedding_tables.dense import DensePart

Floats = npt.NDArray[np.float64]
STEPS, SAME = 12, 1e-9
MOST_BUCKETS = 32  # that are followed one by one; more are joined evenly


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What a step has: an array with an element a rank, or seconds of a collective of all.

    Attributes:
        look_ups: Seconds of every rank's look-ups.
        updates: Seconds of its updates.
        pooled: Seconds of pooled rows on the wires, one way.
        indices: Seconds of indices on them.
        reduced: Seconds of the dense gradients on them, in `buckets`.
        dense: The dense part of every rank: seconds by the names of `DensePart`.
    """

    look_ups: Floats
    updates: Floats
    pooled: float
    indices: float
    reduced: float
    buckets: int
    dense: Mapping[str, Floats]
    pipelined: bool = True


def dense_of_ranks(parts: tuple[DensePart, ...], kinds: npt.NDArray[np.int64]) -> dict[str, Floats]:
    """Seconds of every pass on every rank, whose dense part is that of its kind."""
    names = ("bottom_forward_s", "forward_s", "backward_s", "bottom_backward_s", "optimizer_s")
    return {name: np.array([getattr(part, name) for part in parts])[kinds] for name in names}


@dataclass(slots=True)
class SimulatedStep:
    """Clocks of all ranks and of the wires, step by step; after `run` the seconds of a step, and each rank's waiting."""

    work: StepWork
    clock: Floats = field(init=False)
    wire: float = 0.0
    arrived: float = 0.0
    step_s: float = 0.0
    waited: dict[str, Floats] = field(default_factory=dict)
    # What the wires carried, from when until when: that of this step and of the one before.
    carried: deque[tuple[str, float, float]] = field(default_factory=lambda: deque(maxlen=2 * (MOST_BUCKETS + 3)))

    def __post_init__(self) -> None:
        self.clock = np.zeros_like(self.work.look_ups)

    def run(self) -> SimulatedStep:
        """Steps until two take equally long."""
        for _ in range(STEPS):
            begun, before = self.clock, self.step_s
            self.waited = {name: np.zeros_like(begun) for name in ("ranks", "pooled", "indices", "reduced")}
            self._step()
            self.step_s = float((self.clock - begun).max())
            if abs(self.step_s - before) <= SAME * self.step_s:
                break
        return self

    def _sent(self, what: str, ready: float, seconds: float) -> float:
        """When a collective has arrived that is ready then."""
        if seconds <= 0:
            return ready
        begun = max(self.wire, ready)
        self.wire = begun + seconds
        self.carried.append((what, begun, self.wire))
        return self.wire

    def _wait(self, what: str, until: float, others: float = 0.0) -> None:
        """Every rank waits for something that began when the last of them, at `others`, had come to it.

        While the wires carry something else before it, that is what is waited for: nothing is exposed for longer than it travels.
        """
        begun = np.maximum(self.clock, others)
        left = np.maximum(until - begun, 0.0)
        self.waited["ranks"] += np.maximum(others - self.clock, 0.0)
        for carried, first, last in self.carried:
            during = np.maximum(np.minimum(last, until) - np.maximum(first, begun), 0.0)
            self.waited[carried] += during
            left = left - during
        self.waited[what] += np.maximum(left, 0.0)
        self.clock = np.maximum(self.clock, until)

    def _step(self) -> None:
        work, dense = self.work, self.work.dense
        begun = float(self.clock.max())
        if work.pipelined:
            self._wait("indices", self.arrived)
            self.arrived = self._sent("indices", begun, work.indices)
        else:
            self._wait("indices", self._sent("indices", begun, work.indices), begun)
        self.clock = self.clock + work.look_ups
        ready = float(self.clock.max())
        pooled = self._sent("pooled", ready, work.pooled)
        self.clock = self.clock + dense["bottom_forward_s"]
        if work.pooled:
            self._wait("pooled", pooled, ready)
        self.clock = self.clock + dense["forward_s"]
        first = float(self.clock.max())
        self.clock = self.clock + dense["backward_s"]
        ready = float(self.clock.max())
        last = float((self.clock + dense["bottom_backward_s"]).max())
        full = [first + (last - first) * (number + 1) / work.buckets for number in range(work.buckets)]
        each = work.reduced / work.buckets
        early = sum(moment < ready for moment in full)
        for moment in full[:early]:
            self._sent("reduced", moment, each)
        gradients = self._sent("pooled", ready, work.pooled)
        reduced = self.wire
        for moment in full[early:]:
            reduced = self._sent("reduced", moment, each)
        self.clock = self.clock + dense["bottom_backward_s"]
        if work.pooled:
            self._wait("pooled", gradients, ready)
        self.clock = self.clock + work.updates
        if work.reduced:
            self._wait("reduced", reduced)
        self.clock = self.clock + dense["optimizer_s"]
