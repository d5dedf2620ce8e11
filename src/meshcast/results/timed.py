"""`Timed`: the part of a prediction that is there only where the program runs, all of it or none.

A program that does not fit has no time, no breakdown, no energy and no kernels worth naming: its `Prediction` has no `Timed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from meshcast.results.communication import Communication
from meshcast.simulate import Breakdown, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change that was predicted.

    Attributes:
        change: What it is, in words.
        flag: What makes it on the command line, in place of the same flag (of `--set` the same name) where that is there already.
        step_time_s: The step with it.
        request_time_s: A whole request with it, from prompt to last token; None where no requests are answered.
        saved_s: Seconds that the same work takes less, of the step or, where requests are answered, of a request.
        saved_share: Likewise as a share: `1 - t' / t`, of a step or, where throughput is known, of the time of a token, image
            or sample.
        throughput_per_s: Tokens, images or samples a second with it; None of programs.
    """

    change: str
    flag: str = ""
    step_time_s: float
    saved_s: float
    saved_share: float = 0.0
    throughput_per_s: float | None = None
    request_time_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """Kernels of one kind and shape, with their share of the step."""

    name: str
    count: int
    seconds: float
    limited_by: str
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveShare:
    """Collectives of one kind over one group."""

    kind: str
    group: str
    group_size: int
    count: int
    bytes_sent: float
    seconds: float
    algorithm: str
    level: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """Ranks that behave alike, where not all do: how long they compute, and wait for slower ones at collectives."""

    first_device: int
    devices: int
    speed: float
    busy_s: float
    waiting_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """How long a step takes and where its time goes; energy and FLOPs are per device.

    Attributes:
        step_time_s: The step.
        interval_s: Its lower and upper end.
        lead_s: What a step takes more that begins with the device at rest, until the host has issued what runs first: the average
            of n steps that are waited for together is `step_time_s + lead_s / n`. 0 where the host is not counted.
        breakdown: Its parts, which add up to it.
        communication_s: Seconds of all collectives, exposed or not.
        energy_j: Joules; None of traces, whose kernels are not known.
        energy_by_part: Joules of a device with arrays of cells by what spends them, its idle power among them; empty of others.
        mfu: The model's own matrix FLOPs over what the device could do in the step; None of traces.
        hfu: Likewise with what is recomputed or repeated.
        model_flops: Matrix FLOPs of the model alone, none recomputed or repeated; None of traces.
        matrix_types: The catalogue's types of the peak that `mfu` is relative to.
        top_kernels: The kernels that take longest.
        collectives: Collectives by kind and group, the longest first.
        communication: By group and link, with the critical path; None where one device runs alone, and of traces.
        ranks: Ranks that behave alike, where not all do.
        timeline: When everything runs on one rank; None of pipelines and traces.
        levers: Changes that were predicted, those that save most first.
    """

    step_time_s: float
    interval_s: tuple[float, float]
    breakdown: Breakdown
    communication_s: float
    lead_s: float = 0.0
    energy_j: float | None = None
    energy_by_part: Mapping[str, float] = field(default_factory=dict, repr=False)
    mfu: float | None = None
    hfu: float | None = None
    model_flops: float | None = None
    matrix_types: tuple[str, ...] = field(default=(), repr=False)
    top_kernels: tuple[KernelShare, ...] = field(default=(), repr=False)
    collectives: tuple[CollectiveShare, ...] = field(default=(), repr=False)
    communication: Communication | None = field(default=None, repr=False)
    ranks: tuple[RankShare, ...] = ()
    timeline: Timeline | None = field(default=None, repr=False, compare=False)
    levers: tuple[Lever, ...] = ()
