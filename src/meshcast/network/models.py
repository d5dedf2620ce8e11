"""The network models that can be asked for by name, behind one seam.

All are asked about collectives whose groups all run at once, on one cluster in one state, with ranks placed in one way.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from meshcast.base import Group, KeptBeside, UnsupportedError, UsageError, larger, smaller
from meshcast.hardware import HEALTHY, NetworkLevel, degraded
from meshcast.network.astra.config import AstraBackend
from meshcast.network.astra.model import AstraSource, astra_plan
from meshcast.network.collective import plan_collective
from meshcast.network.fabric import fabric_of, read_fabric
from meshcast.network.flow import FlowJob, FlowResult, FlowTraffic, SharedFabric
from meshcast.network.plan import CollectivePlan
from meshcast.network.setting import Setting, WholeJob
from meshcast.network.spread import Ints, LevelSpread, lying_apart, spread_of_devices, spread_over_levels
from meshcast.workload import Collective

FULL_SPEED = 1 - 1e-9  # beyond it a share is 1 but for rounding, which should not decide how a step is put in order

NetworkOrigin = Literal["analytical", "simulated"]


class NetworkModel(Protocol):
    """Answers for collectives."""

    @property
    def name(self) -> str:
        """The name that `--network` takes."""

    @property
    def origin(self) -> NetworkOrigin:
        """The origin of its seconds, as a prediction's provenance names it."""

    def plan(self, collective: Collective) -> CollectivePlan:
        """How a collective is carried out."""

    def seconds(self, collective: Collective) -> float:
        """Seconds of a collective that runs alone, on links in the state that they are in."""

    def shares(self, active: Sequence[Collective]) -> Sequence[float]:
        """The speed of each of several collectives under way at once, as a share of its speed alone; at most 1."""


class AlphaBeta:
    """The closed form: plans added up. Under way at once, collectives share the levels in proportion.

    A level whose links are not all healthy runs at the rate of the slowest device's: all members of a collective move
    equal amounts.
    """

    name = "alpha-beta"
    origin: NetworkOrigin = "analytical"

    def __init__(self, *, setting: Setting) -> None:
        self.setting = setting
        self.plain = (
            setting.placement is None and setting.conditions.healthy
        )  # ranks in their own order on healthy links
        # On healthy links ranks in their own order are timed alike by all runs.
        known = known_plans(setting.cluster.levels, setting.algorithm, setting.protocol) if self.plain else KnownPlans()
        self._plans, self._spreads = known.of_collectives, known.of_groups

    def plan(self, collective: Collective) -> CollectivePlan:
        """The library's plan on the links as they are."""
        found = self._plans.get(collective)
        if found is None:
            found = self._plans[collective] = self._planned(collective)
        return found

    def seconds(self, collective: Collective) -> float:
        """The plan's own time."""
        return self.plan(collective).seconds

    def shares(self, active: Sequence[Collective]) -> Sequence[float]:
        """A level that several want more of than there is goes to all of them at `1 / sum` of the shares they use alone.

        A collective that lasts t seconds and sends b bytes over a level of rate B uses the share `b / (B t)` of it; of
        several levels the slowest counts.
        """
        if len(active) < 2:
            return (1.0,) * len(active)
        uses = [_uses(self.plan(collective)) for collective in active]
        wanted = {level: sum(use.get(level, 0.0) for use in uses) for use in uses for level in use}
        return tuple(
            functools.reduce(smaller, [1 / larger(1.0, wanted[level]) for level in use]) if use else 1.0 for use in uses
        )

    def _planned(self, collective: Collective) -> CollectivePlan:
        setting = self.setting
        cluster = setting.cluster
        chosen = functools.partial(plan_collective, algorithm=setting.algorithm, protocol=setting.protocol)
        if not self.plain:
            rows = setting.rows(collective)
            cluster = replace(cluster, levels=tuple(_as_it_is(level, rows, setting) for level in cluster.levels))
            return chosen(collective, cluster, spread=spread_of_devices(rows, cluster))
        spread = self._spreads.get(collective.group)
        if spread is None:
            spread = self._spreads[collective.group] = spread_over_levels(collective.group, cluster)
        # The stages of a pipeline send as many messages as they have neighbours, and most of them lie alike.
        lying = tuple((at.parts, at.fewest, at.below, at.within, at.lines, at.leaving) for at in spread)
        alike = collective.kind, collective.payload_bytes, collective.group.size, collective.copies, lying
        known = alike_plans(tuple(at.level for at in spread), setting.algorithm, setting.protocol)
        found = known.get(alike)
        if found is None:
            found = known[alike] = chosen(collective, cluster, spread=spread)
        return found


@dataclass(frozen=True, slots=True)
class KnownPlans:
    """The plans of collectives on healthy links, as far as they are known: to be added to by whoever makes one.

    Attributes:
        of_collectives: By collective.
        of_groups: How groups lie in the network.
    """

    of_collectives: dict[Collective, CollectivePlan] = field(default_factory=dict)
    of_groups: dict[Group, tuple[LevelSpread, ...]] = field(default_factory=dict)


@functools.lru_cache(maxsize=64)
def known_plans(levels: tuple[NetworkLevel, ...], algorithm: str | None, protocol: str | None) -> KnownPlans:
    """What is known of a network's collectives."""
    return KnownPlans()


@functools.lru_cache(maxsize=512)
def alike_plans(
    levels: tuple[NetworkLevel, ...], algorithm: str | None, protocol: str | None
) -> dict[tuple[object, ...], CollectivePlan]:
    """Plans of collectives over just these levels, by everything else that a plan depends on: to be added to.

    A sweep over what joins hosts leaves the plans inside of a host what they were.
    """
    return {}


class Flow:
    """The library's plans as flows on the fabric's graph, which share every link max-min fairly."""

    name = "flow"
    origin: NetworkOrigin = "simulated"

    def __init__(self, *, setting: Setting) -> None:
        self.setting = setting
        self._seconds: dict[Collective, float] = {}

    @cached_property
    def fabric(self) -> SharedFabric:
        """The graph, with what was asked of it."""
        setting = self.setting
        if setting.graph is not None:
            return SharedFabric(read_fabric(setting.graph, setting.cluster, setting.conditions).fabric)
        return SharedFabric(fabric_of(setting.cluster, setting.devices, setting.conditions))

    def plan(self, collective: Collective) -> CollectivePlan:
        """The library's plan: it does not know in which state the links are."""
        return self._closed.plan(collective)

    @cached_property
    def _closed(self) -> AlphaBeta:
        setting = self.setting
        # A library does not ask switches to add that a device has lost its links to, or that nobody knows of.
        failed = {condition.level for condition in setting.conditions.links if condition.share == 0}
        levels = tuple(
            replace(level, in_network_reduction=False) if setting.graph is not None or level.name in failed else level
            for level in setting.cluster.levels
        )
        return AlphaBeta(setting=replace(setting, cluster=replace(setting.cluster, levels=levels), conditions=HEALTHY))

    @cached_property
    def _others(self) -> list[FlowTraffic]:
        """What other jobs ask of the fabric."""
        elsewhere = Flow(setting=replace(self.setting, placement=None, beside=(), algorithm=None, protocol=None))
        return [one for other in self.setting.beside for one in elsewhere._traffic(other)]

    def seconds(self, collective: Collective) -> float:
        """The collective's flows with the fabric to themselves, but for other jobs."""
        if collective not in self._seconds:
            self._seconds[collective] = self._timed(collective)
        return self._seconds[collective]

    def _timed(self, collective: Collective) -> float:
        traffic = self._traffic(collective)
        if self._others:
            rates = self.fabric.rates([*traffic, *self._others])
            return max((1 / rate for rate in rates[: len(traffic)]), default=0.0)
        if len(traffic) == 1:
            return self.fabric.alone(traffic[0])
        return self.fabric.simulate(_jobs(traffic)).seconds

    def _traffic(self, collective: Collective) -> list[FlowTraffic]:
        """What a collective asks of the fabric; groups of different sizes are carried out each in their way."""
        by_size: dict[int, list[Ints]] = {}
        for row in self.setting.rows(collective):
            by_size.setdefault(len(row), []).append(row)
        sizes = [(size, np.stack(rows)) for size, rows in by_size.items() if size > 1]
        if len(sizes) == 1:
            return [FlowTraffic(plan=self.plan(collective), groups=sizes[0][1])]
        return [FlowTraffic(plan=self.plan(_of_rows(collective, rows)), groups=rows) for _, rows in sizes]

    def shares(self, active: Sequence[Collective]) -> Sequence[float]:
        """The speed that max-min fair sharing leaves each collective, as a share of its speed alone."""
        if len(active) < 2:
            return (1.0,) * len(active)
        traffic = [self._traffic(collective) for collective in active]
        rates = iter(self.fabric.rates([*(one for each in traffic for one in each), *self._others]))
        shares: list[float] = []
        for collective, each in zip(active, traffic, strict=True):
            slowest = min((next(rates) for _ in each), default=math.inf)
            alone = self.seconds(collective)
            share = slowest * alone if math.isfinite(slowest) and alone else 1.0
            shares.append(share if share < FULL_SPEED else 1.0)
        return tuple(shares)

    def together(self, planned: Sequence[tuple[Collective, CollectivePlan]]) -> FlowResult:
        """Collectives with their plans, all started at once; jobs are named by their position."""
        traffic = [
            FlowTraffic(plan=plan, groups=np.stack(self.setting.rows(collective))) for collective, plan in planned
        ]
        return self.fabric.simulate(_jobs(traffic))


def _jobs(traffic: Sequence[FlowTraffic]) -> list[FlowJob]:
    return [FlowJob(name=str(index), traffic=one) for index, one in enumerate(traffic)]


def _of_rows(collective: Collective, rows: Ints) -> Collective:
    """The collective in some of its groups, all of one size."""
    group = replace(collective.group, table=tuple(tuple(int(device) for device in row) for row in rows))
    return replace(collective, group=replace(group, dims=((rows.shape[1], 1),)))


class Astra:
    """ASTRA-sim's rules (`preset`) or its own program, for one collective at a time; they know no state of links."""

    origin: NetworkOrigin = "simulated"

    def __init__(
        self,
        *,
        setting: Setting,
        source: AstraSource = "preset",
        backend: AstraBackend = "Unaware",
        name: str = "astra",
    ) -> None:
        self.setting = setting
        self.source: AstraSource = source
        self.backend: AstraBackend = backend
        self.name = name
        self._plans: dict[Collective, CollectivePlan] = {}
        given = {"--algorithm": setting.algorithm, "--protocol": setting.protocol, "--placement": setting.placement}
        for flag, value in given.items():
            if value is not None:
                raise UsageError(
                    f"{self.name} takes the algorithms of ASTRA-sim's examples, and ranks in their own order", where=flag,
                    fix="use --network alpha-beta or flow",
                )  # fmt: skip

    def plan(self, collective: Collective) -> CollectivePlan:
        """The plan of a collective as ASTRA-sim carries it out, as one stage."""
        if collective not in self._plans:
            setting = self.setting
            job = setting.part_of or WholeJob(cluster=setting.cluster, devices=setting.devices)
            self._plans[collective] = astra_plan(collective, setting.cluster, self.backend, self.source, job)
        return self._plans[collective]

    def seconds(self, collective: Collective) -> float:
        """When its last NPU would be done."""
        return self.plan(collective).seconds

    def shares(self, active: Sequence[Collective]) -> Sequence[float]:
        """Full speed for all: collectives of ASTRA-sim do not touch each other here."""
        return (1.0,) * len(active)


NETWORK_MODELS: dict[str, Callable[..., NetworkModel]] = {
    "alpha-beta": AlphaBeta,
    "flow": Flow,
    "astra": Astra,
    "astra-aware": functools.partial(Astra, backend="Aware", name="astra-aware"),
    "astra-sim": functools.partial(Astra, source="astra-sim", name="astra-sim"),
    "astra-sim-aware": functools.partial(Astra, source="astra-sim", backend="Aware", name="astra-sim-aware"),
}


def network_model(name: str, setting: Setting) -> NetworkModel:
    """The model of that name.

    Raises:
        UsageError: There is none.
    """
    if name not in NETWORK_MODELS:
        raise UsageError(f"no network model {name!r}", where="--network", fix="one of " + ", ".join(NETWORK_MODELS))
    return NETWORK_MODELS[name](setting=setting)


def _as_it_is(level: NetworkLevel, rows: Sequence[Ints], setting: Setting) -> NetworkLevel:
    """A level at the rate that the state of its links leaves a collective."""
    share = degraded(level, np.unique(np.concatenate(rows)).tolist(), setting.conditions)
    if share == 0:
        raise UnsupportedError(
            f"links of level {level.name} have failed, and the closed form knows no way around them",
            where="--network alpha-beta", fix="use --network flow",
        )  # fmt: skip
    return replace(level, link_bandwidth=level.link_bandwidth * share)


def network_read(model: NetworkModel, collectives: Iterable[Collective]) -> Hashable | None:
    """Everything that a run reads of a network for its collectives: where it is equal, `seconds` and `shares` are.

    None where a model does not say what they follow from.
    """
    if not isinstance(model, AlphaBeta):
        return None
    return tuple([_read(model.plan(collective)) for collective in collectives])


def groups_apart(model: NetworkModel, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Of groups that send the same, those that can take different times: each of the others takes as long as one of them.

    All of them where a model looks at more than how they lie in the network.
    """
    if not isinstance(model, AlphaBeta) or not model.plain:
        return groups
    return lying_apart(groups, model.setting.cluster.levels)


_READ: KeptBeside[Hashable] = KeptBeside(8192)  # of plans that sweeps come back to


def _read(plan: CollectivePlan) -> Hashable:
    return _READ.of(plan, None, lambda: (plan.seconds, plan.in_network, tuple(_uses(plan).items())))


def _uses(plan: CollectivePlan) -> dict[str, float]:
    """The share of each level's rate that a plan uses on average while it runs alone."""
    rates = {stage.level.name: stage.level.bandwidth for stage in plan.stages}
    return {level: smaller(1.0, sent / (rates[level] * plan.seconds)) for level, sent in plan.level_bytes.items()}
