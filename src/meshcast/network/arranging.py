"""From what is asked for to a `Setting`: places of ranks, a graph of one's own, other jobs on the same fabric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from meshcast.base import Group, UsageError, format_time
from meshcast.hardware import HEALTHY, Cluster, Conditions, check_conditions
from meshcast.network.benchmark import collective_of, kind_named, parse_sizes
from meshcast.network.effects import settings_without_effect
from meshcast.network.fabric import read_fabric
from meshcast.network.models import AlphaBeta, network_model
from meshcast.network.rank_placement import RankPlacement, optimise_placement, read_placement
from meshcast.network.setting import Setting
from meshcast.workload import Collective

OPTIMISE = "optimise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """What is asked for about a network, in words.

    Attributes:
        network: Name of the model.
        conditions: The state of devices and links.
        placement: A file with the device of each rank, or `optimise`.
        graph: A file with a graph of one's own.
        beside: Collectives of other jobs that never end (`other_job`).
    """

    network: str = "alpha-beta"
    conditions: Conditions = HEALTHY
    placement: str | None = None
    graph: str | None = None
    beside: tuple[Collective, ...] = ()


def arranged(
    asked: Arrangement,
    cluster: Cluster,
    ranks: int,
    collectives: Mapping[Collective, int],
    step: Callable[[Setting], float] | None = None,
) -> tuple[Setting, tuple[str, ...]]:
    """The setting of a job of so many ranks, and what should be said about it.

    Args:
        asked: What is asked for.
        cluster: The hardware, all of it.
        ranks: Devices of the job.
        collectives: What the job runs, and how often.
        step: Seconds of the job's step in a setting, by which an optimised placement is chosen among those that are best
            for its collectives; without it the collectives alone decide.

    Raises:
        UsageError, InputError: Something does not exist, does not match, or is for another model.
    """
    conditions = asked.conditions
    beside = asked.beside
    if asked.network != "flow":
        for flag, given in (("--beside", beside), ("--fabric", asked.graph)):
            if given:
                raise UsageError(
                    f"{asked.network} knows no links between single devices", where=flag, fix="use --network flow"
                )
    placement = None
    if asked.placement is not None and asked.placement != OPTIMISE:
        placement = read_placement(Path(asked.placement), ranks, cluster.max_devices)
    far = (*(placement.devices if placement else ()), *(_last(other) for other in beside))
    span = max(ranks, 1 + max(far, default=0))
    if asked.graph is not None:
        found = read_fabric(Path(asked.graph), cluster)
        if found.fabric.devices < span:
            raise UsageError(
                f"the graph has {found.fabric.devices} devices, the job needs {span}", where=asked.graph,
                fix="add devices to the file, or ask for fewer",
            )  # fmt: skip
        span = found.fabric.devices
        conditions = replace(conditions, speed={**found.speed, **conditions.speed})
    # A graph of one's own may have links of a level that so few devices would not need.
    spanned = cluster.for_devices(span) if asked.graph is None else cluster
    check_conditions(conditions, cluster, span)
    known = {level.name for level in spanned.levels}
    unspanned = {condition.level for condition in conditions.links} | set(conditions.background)
    said = tuple(
        f"the state of level {name!r} has no effect: {span} devices do not span it"
        for name in sorted(unspanned - known)
    )
    if unspanned:
        conditions = replace(
            conditions,
            links=tuple(condition for condition in conditions.links if condition.level in known),
            background={name: share for name, share in conditions.background.items() if name in known},
        )
    setting = Setting(
        cluster=spanned, devices=span, conditions=conditions, placement=placement,
        graph=Path(asked.graph) if asked.graph is not None else None, beside=beside,
    )  # fmt: skip
    if asked.placement == OPTIMISE:
        placement, best = _optimised(setting, ranks, collectives, step)
        return replace(setting, placement=placement), (*said, best)
    return setting, said


def without_effect(
    network: str, setting: Setting, collectives: Mapping[Collective, int], *, levels: bool
) -> tuple[str, ...]:
    """What changes no collective's time: of the state of links, and of the cluster's own settings where `levels` says so."""

    def seconds(cluster: Cluster, conditions: Conditions) -> tuple[float, ...]:
        model = network_model(network, replace(setting, cluster=cluster, conditions=conditions))
        # Equal but for rounding is equal.
        return tuple(float(f"{model.seconds(collective):.9g}") for collective in collectives)

    healthy_devices = replace(setting.conditions, speed={})
    if not levels and healthy_devices.healthy:
        return ()
    return settings_without_effect(setting.cluster, healthy_devices, seconds, levels=levels)


def _optimised(
    setting: Setting, ranks: int, collectives: Mapping[Collective, int], step: Callable[[Setting], float] | None
) -> tuple[RankPlacement | None, str]:
    if setting.devices != ranks:
        raise UsageError(
            "ranks are placed by search on as many devices as there are ranks", where="--placement",
            fix="leave out --beside and --fabric, or give a placement file",
        )  # fmt: skip
    several = {collective: count for collective, count in collectives.items() if collective.group.size > 1}
    closed = AlphaBeta(setting=setting)
    choice = optimise_placement(list(several), ranks, setting.cluster, closed.seconds, list(several.values()))
    if step is None:
        best, of = choice, "of communication, in closed form"
    else:
        # What is least in sum can hide worse behind compute: the step decides between the few best and ranks as they are.
        timed = [(step(replace(setting, placement=placement)), placement) for placement in choice.finalists]
        now = step(setting)
        seconds, placement = min(timed, key=lambda each: each[0], default=(now, choice.placement))
        best = replace(choice, placement=placement, seconds=seconds, dense_s=now)
        of = "a step"
    if best.placement.dense or best.seconds >= best.dense_s:
        return None, f"of {choice.tried} placements of ranks none is faster than their own order"
    faster = f"{format_time(best.seconds)} {of}, instead of {format_time(best.dense_s)}"
    return best.placement, f"the best of {choice.tried} placements of ranks: {faster}"


def other_job(text: str) -> Collective:
    """A collective that another job keeps running, from KIND:BYTES:FIRST-LAST.

    Raises:
        UsageError: It is something else.
    """
    kind, _, rest = text.partition(":")
    size, _, place = rest.partition(":")
    first, dash, last = place.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise UsageError(
            f"{text!r} is not KIND:BYTES:FIRST-LAST", where="--beside", fix="write --beside all_reduce:1GiB:64-127"
        )
    (bytes_,) = parse_sizes(size, "--beside", several=False)
    group = Group(dims=((int(last) - int(first) + 1, 1),), axes=("another job",), first=int(first))
    return collective_of(kind_named(kind), bytes_, group)


def _last(collective: Collective) -> int:
    return collective.group.first + collective.group.size - 1
