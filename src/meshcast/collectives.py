"""One collective by itself on chosen hardware, as nccl-tests would measure it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from meshcast.errors import UsageError
from meshcast.hardware import HEALTHY, Cluster, Conditions, resolve
from meshcast.mesh import Group, Mesh
from meshcast.network.benchmark import bus_factor, collective_of, kind_named
from meshcast.network.effects import settings_without_effect
from meshcast.network.flow import LevelUse
from meshcast.network.models import AlphaBeta, Flow, Setting, network_model
from meshcast.network.placement import Placement, optimise_placement, read_placement
from meshcast.network.plan import CollectivePlan
from meshcast.units import Dimension, format_bytes, format_time, parse
from meshcast.workload.graph import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveQuestion:
    """What is asked for; `axes` of `mesh` form the groups, all devices form one where there are none."""

    kind: str
    sizes: tuple[int, ...]
    on: str
    devices: int | None = None
    mesh: Mesh | None = None
    axes: tuple[str, ...] = ()
    algorithm: str | None = None
    protocol: str | None = None
    network: str = "alpha-beta"
    placement: str | None = None
    conditions: Conditions = HEALTHY
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveAnswer:
    """A collective's time, and how it was carried out.

    `seconds` counts what else runs and the state of the links; `alone_s` is the plan's own time on healthy, free ones.
    """

    collective: Collective
    size: int
    cluster: str
    devices: int
    network: str
    plan: CollectivePlan
    seconds: float
    beside: tuple[CollectiveAnswer, ...] = ()
    links: tuple[LevelUse, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def alone_s(self) -> float:
        """Seconds when nothing else runs."""
        return self.plan.seconds

    @property
    def algbw(self) -> float:
        """bytes/s of the buffer."""
        return self.size / self.seconds if self.seconds else 0.0

    @property
    def busbw(self) -> float:
        """bytes/s that the busiest link of a ring would carry."""
        return self.algbw * bus_factor(self.collective.kind, self.collective.group.size)

    @property
    def title(self) -> str:
        """What ran where, in a line."""
        group = self.collective.group
        among = f"{group.size:,} devices" if group.size == self.devices else f"groups of {group.size:,} ({group})"
        return (
            f"{self.collective.kind} of {format_bytes(self.size)} among {among} of {self.devices:,} on {self.cluster}"
        )

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        plan = self.plan
        return {
            "schema": "meshcast.collective/1",
            "kind": self.collective.kind,
            "bytes": self.size,
            "on": self.cluster,
            "devices": self.devices,
            "group_size": self.collective.group.size,
            "group": str(self.collective.group),
            "network": self.network,
            "time_s": self.seconds,
            "alone_s": self.alone_s,
            "algbw_bytes_per_s": self.algbw,
            "busbw_bytes_per_s": self.busbw,
            "algorithm": plan.algorithm,
            "protocol": plan.protocol or None,
            "why": plan.why,
            "others_s": dict(plan.others),
            "start_s": plan.start_s,
            "latency_s": plan.latency_s,
            "bandwidth_s": plan.bandwidth_s,
            "stages": [
                {
                    "primitive": stage.primitive, "level": stage.level.name, "algorithm": stage.algorithm,
                    "parts": stage.parts, "below": stage.below, "steps": stage.steps, "alpha_s": stage.alpha_s,
                    "step_bytes": stage.step_bytes, "rate_bytes_per_s": stage.rate,
                }
                for stage in plan.stages
            ],
            "links": [{"level": use.level, "sent_bytes": use.sent, "mean": use.mean, "most": use.most} for use in self.links],
            "beside": [other.to_json() for other in self.beside],
            "notes": list(self.notes),
        }  # fmt: skip


def parse_sizes(text: str, flag: str) -> tuple[int, ...]:
    """Bytes from `1048576`, `1MiB`, a list `1KiB,1MiB`, or a sweep by doubling `1KiB..8GiB`."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        size, end = _bytes(first, flag), _bytes(last if dots else first, flag)
        if end < size:
            raise UsageError(f"the sweep {part!r} ends before it begins", where=flag, fix="write FIRST..LAST")
        while size <= end:
            found.append(size)
            size *= 2
    return tuple(found)


def _bytes(text: str, flag: str) -> int:
    plain = re.fullmatch(r"\s*(\d{1,18})\s*", text)
    size = float(plain[1]) if plain else parse(re.sub(r"(?<=\d)(?=[A-Za-z])", " ", text.strip()), Dimension.BYTES)
    if size < 1 or size != int(size) or size > 2**60:
        raise UsageError(
            f"{text!r} is not a whole number of bytes from 1 to 2^60", where=flag, fix=f"write {flag} 1MiB"
        )
    return int(size)


def answer(question: CollectiveQuestion) -> list[CollectiveAnswer]:
    """An answer for every size asked for.

    Raises:
        UsageError: A name, a size or a mesh does not exist or does not match.
    """
    kind = kind_named(question.kind)
    cluster, mesh = _hardware(question)
    group = _group(mesh, question.axes, "--axes")
    beside = [_other(text, mesh) for text in question.beside]
    return [_answer(question, collective_of(kind, size, group), size, cluster, mesh, beside) for size in question.sizes]


def _answer(
    question: CollectiveQuestion,
    collective: Collective,
    size: int,
    cluster: Cluster,
    mesh: Mesh,
    beside: Sequence[tuple[Collective, int]],
) -> CollectiveAnswer:
    setting = Setting(
        cluster=cluster,
        devices=mesh.size,
        conditions=question.conditions,
        algorithm=question.algorithm,
        protocol=question.protocol,
    )
    placement, notes = _placement(question.placement, [collective, *(other for other, _ in beside)], setting)
    setting = replace(setting, placement=placement)
    model = network_model(question.network, setting)
    asked = CollectiveAnswer(
        collective=collective, size=size, cluster=cluster.name, devices=mesh.size, network=question.network,
        plan=model.plan(collective), seconds=model.seconds(collective),
    )  # fmt: skip
    # Others are carried out as their library would: what was asked for by name is the first one's.
    free = network_model(question.network, replace(setting, algorithm=None, protocol=None))
    others = tuple(
        replace(asked, collective=other, size=bytes_, plan=free.plan(other), seconds=free.seconds(other))
        for other, bytes_ in beside
    )
    if isinstance(model, Flow):
        result = model.together([(one.collective, one.plan) for one in (asked, *others)])
        times = [job.seconds for job in result.jobs]
        others = tuple(replace(other, seconds=took) for other, took in zip(others, times[1:], strict=True))
        asked = replace(asked, seconds=times[0], links=result.levels)
    elif others:
        notes += (f"--beside has no effect with --network {question.network}: only flow lets collectives share links",)
    return replace(asked, beside=others, notes=notes + _without_effect(question, setting, collective))


def _placement(
    asked: str | None, collectives: Sequence[Collective], setting: Setting
) -> tuple[Placement | None, tuple[str, ...]]:
    if asked is None:
        return None, ()
    if asked != "optimise":
        return read_placement(Path(asked), setting.devices, setting.cluster.max_devices), ()
    closed = AlphaBeta(setting=setting)
    choice = optimise_placement(collectives, setting.devices, setting.cluster, closed.seconds)
    if choice.placement.dense:
        return None, (f"no placement of the {choice.tried} tried is faster than ranks in their own order",)
    faster = f"{format_time(choice.seconds)} instead of {format_time(choice.dense_s)}"
    return choice.placement, (f"the best of {choice.tried} placements takes {faster} (closed form)",)


def _without_effect(question: CollectiveQuestion, setting: Setting, collective: Collective) -> tuple[str, ...]:
    def seconds(cluster: Cluster, conditions: Conditions) -> float:
        changed = replace(setting, cluster=cluster, conditions=conditions)
        return network_model(question.network, changed).seconds(collective)

    return settings_without_effect(setting.cluster, setting.conditions, seconds)


def _hardware(question: CollectiveQuestion) -> tuple[Cluster, Mesh]:
    cluster = resolve(question.on)
    asked, mesh = question.devices, question.mesh
    if mesh is not None and asked is not None and mesh.size != asked:
        raise UsageError(
            f"the mesh {mesh} has {mesh.size} devices, not {asked}", where="--devices", fix="leave one of them out"
        )
    if mesh is None:
        if asked is None:
            asked = cluster.levels[0].size if cluster.levels else 1
        mesh = Mesh.of({"all": asked})
    if mesh.size < 2:
        raise UsageError(
            f"a collective among {mesh.size} device moves nothing", where="--devices", fix="ask for 2 devices or more"
        )
    if not cluster.levels:
        raise UsageError(
            f"{question.on} is a single device without a network", where="--on",
            fix="name a cluster of `meshcast devices`, e.g. dgx-h100",
        )  # fmt: skip
    return cluster.for_devices(mesh.size), mesh


def _group(mesh: Mesh, axes: Sequence[str], flag: str) -> Group:
    names = tuple(axes) or tuple(mesh.sizes)
    for name in names:
        if name not in mesh.sizes:
            raise UsageError(f"the mesh {mesh} has no axis {name!r}", where=flag, fix="one of " + ", ".join(mesh.sizes))
    return mesh.group(names)


def _other(text: str, mesh: Mesh) -> tuple[Collective, int]:
    kind, colon, rest = text.partition(":")
    size, _, axes = rest.partition(":")
    sizes = parse_sizes(size, "--beside") if colon else ()
    if len(sizes) != 1:
        raise UsageError(
            f"{text!r} is not KIND:BYTES[:AXES]", where="--beside", fix="write --beside all_reduce:1GiB:data"
        )
    group = _group(mesh, axes.replace("*", ",").split(",") if axes else (), "--beside")
    return collective_of(kind_named(kind), sizes[0], group), sizes[0]
