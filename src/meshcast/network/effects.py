"""Settings that change nothing: found by changing them and asking again, never guessed.

A condition, an oversubscription or a level that no collective reaches would otherwise be believed to have been counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from meshcast.hardware import HEALTHY, Cluster, Conditions, NetworkLevel

# Settings of a level that a file may have beyond what every level has, with what they are when not set, and otherwise.
_OPTIONAL: dict[str, tuple[Any, ...]] = {
    "in_network_reduction": (False,),
    "oversubscription": (1.0,),
    "rails": (1,),
    "wrap": ("always", "never"),
    "twist": (False,),
    "staging_bandwidth": (0.0,),
}


def settings_without_effect(
    cluster: Cluster, conditions: Conditions, answer: Callable[[Cluster, Conditions], object], *, levels: bool = True
) -> tuple[str, ...]:
    """A sentence for each setting of the cluster and condition that `answer` does not depend on.

    `answer` is worked out again with each setting taken back to what it is when it is not set, and with the latency and
    rate of each level changed together; settings whose answers are equal have no effect. It should be a value that
    compares equal when nothing changed, such as the seconds of every collective. Without `levels` only conditions are
    looked at.
    """
    now = answer(cluster, conditions)
    found = [
        said for said, others in _of_levels(cluster) if levels and all(answer(one, conditions) == now for one in others)
    ]
    # Two links that are equally tired hide each other: a condition counts by what it does alone, too.
    healthy = answer(cluster, HEALTHY) if not conditions.healthy else now
    for said, without, alone in _of_state(conditions):
        if answer(cluster, without) == now and answer(cluster, alone) == healthy:
            found.append(said)
    return tuple(found)


def _of_levels(cluster: Cluster) -> Iterator[tuple[str, list[Cluster]]]:
    for index, level in enumerate(cluster.levels):
        slower = replace(level, link_bandwidth=level.link_bandwidth / 2, latency_s=2 * level.latency_s + 1e-6)
        yield f"level {level.name!r} of {cluster.name} is not used", [_with(cluster, index, slower)]
        for name, values in _OPTIONAL.items():
            value = getattr(level, name)
            if value != values[0]:
                said = f"{name} = {_said(value)} of level {level.name!r} has no effect"
                yield (
                    said,
                    [_with(cluster, index, replace(level, **{name: other})) for other in values if other != value],
                )


def _of_state(conditions: Conditions) -> Iterator[tuple[str, Conditions, Conditions]]:
    """(sentence, the conditions without one of them, that one alone)."""
    for number, link in enumerate(conditions.links):
        whose = "all devices" if link.device is None else f"device {link.device}"
        rest = (*conditions.links[:number], *conditions.links[number + 1 :])
        said = f"links of {whose} at level {link.level!r} at {link.share:g} of their rate have no effect"
        yield said, replace(conditions, links=rest), Conditions(links=(link,))
    for name, share in conditions.background.items():
        left = {other: value for other, value in conditions.background.items() if other != name}
        said = f"background traffic of {share:g} on level {name!r} has no effect"
        yield said, replace(conditions, background=left), Conditions(background={name: share})
    for device, speed in conditions.speed.items():
        rest_of_speed = {other: value for other, value in conditions.speed.items() if other != device}
        said = f"speed {speed:g} of device {device} has no effect"
        yield said, replace(conditions, speed=rest_of_speed), Conditions(speed={device: speed})


def _with(cluster: Cluster, index: int, level: NetworkLevel) -> Cluster:
    return replace(cluster, levels=(*cluster.levels[:index], level, *cluster.levels[index + 1 :]))


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
