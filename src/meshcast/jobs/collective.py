"""One collective by itself on chosen hardware, as nccl-tests would measure it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshcast.base import Group, Mesh, UsageError, format_bytes
from meshcast.hardware import HEALTHY, Cluster, resolve
from meshcast.network import (
    Arrangement,
    CollectivePlan,
    Flow,
    LevelUse,
    arranged,
    bus_factor,
    collective_of,
    filled_alike,
    kind_named,
    network_model,
    parse_sizes,
    without_effect,
)
from meshcast.workload import Collective


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveQuestion:
    """A question about one collective; `axes` of `mesh` form its groups, all devices form one where none are given."""

    kind: str
    sizes: tuple[int, ...]
    on: str
    arrangement: Arrangement
    devices: int | None = None
    mesh: Mesh | None = None
    axes: tuple[str, ...] = ()
    algorithm: str | None = None
    protocol: str | None = None
    together: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveAnswer:
    """A collective's time, and how it was carried out.

    `seconds` counts what else runs and the state of the links; `alone_s` is the time on healthy links that are free.
    """

    collective: Collective
    size: int
    cluster: str
    devices: int
    network: str
    plan: CollectivePlan
    seconds: float
    alone_s: float
    together: tuple[CollectiveAnswer, ...] = ()
    links: tuple[LevelUse, ...] = ()
    notes: tuple[str, ...] = ()

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
        """The collective, its size and its hardware, in a line."""
        return self.titled(format_bytes(self.size))

    def titled(self, size: str) -> str:
        """The same with these words for the size, such as those of a sweep."""
        group = self.collective.group
        if group.size == self.devices:
            return f"{self.collective.kind} of {size} among {self.devices:,} devices of {self.cluster}"
        among = f"groups of {group.size:,} ({group}) of {self.devices:,} devices"
        return f"{self.collective.kind} of {size} among {among} of {self.cluster}"

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
            "with": [other.to_json() for other in self.together],
            "notes": list(self.notes),
        }  # fmt: skip


def answer_collective(question: CollectiveQuestion) -> list[CollectiveAnswer]:
    """An answer for every size asked for.

    Raises:
        UsageError: A name, a size or a mesh does not exist or does not match.
    """
    kind = kind_named(question.kind)
    cluster, mesh = _hardware(question)
    group = _group(mesh, question.axes, "--axes")
    others = [_other(text, mesh) for text in question.together]
    if others and question.arrangement.network != "flow":
        raise UsageError(
            f"{question.arrangement.network} times one collective at a time", where="--with", fix="use --network flow"
        )
    if others and question.arrangement.beside:
        raise UsageError(
            "collectives that start together and jobs that never end are not timed at once", where="--with",
            fix="leave out --with or --beside",
        )  # fmt: skip
    asked = [(collective_of(kind, size, group), size) for size in question.sizes]
    return [_answer(question, [one, *others], cluster, mesh.size) for one in asked]


def _answer(
    question: CollectiveQuestion, sized: Sequence[tuple[Collective, int]], cluster: Cluster, ranks: int
) -> CollectiveAnswer:
    """The answer for the first of some collectives that start at once."""
    network = question.arrangement.network
    counted = {collective: 1 for collective, _ in sized}
    free, notes = arranged(question.arrangement, cluster, ranks, counted)
    # Others are carried out as their library would: what was asked for by name is the first one's.
    setting = replace(free, algorithm=question.algorithm, protocol=question.protocol)
    models = [network_model(network, setting), *(network_model(network, free) for _ in sized[1:])]
    quiet = network_model(network, replace(setting, conditions=HEALTHY, beside=()))
    answers = [
        CollectiveAnswer(
            collective=collective, size=size, cluster=cluster.name, devices=ranks, network=network,
            plan=model.plan(collective), seconds=model.seconds(collective), alone_s=quiet.seconds(collective),
        )
        for model, (collective, size) in zip(models, sized, strict=True)
    ]  # fmt: skip
    first, others = answers[0], answers[1:]
    if isinstance(models[0], Flow) and not setting.beside:
        result = models[0].together([(one.collective, one.plan) for one in answers])
        others = [replace(other, seconds=job.seconds) for other, job in zip(others, result.jobs[1:], strict=True)]
        first = replace(first, seconds=result.jobs[0].seconds, links=result.levels)
    silent = without_effect(network, setting, {sized[0][0]: 1}, levels=True)
    return replace(first, together=tuple(others), notes=(*notes, *silent))


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
    cluster.for_devices(mesh.size)  # refuses more than there are
    return filled_alike(cluster, mesh.size), mesh


def _group(mesh: Mesh, axes: Sequence[str], flag: str) -> Group:
    names = tuple(axes) or tuple(mesh.sizes)
    for name in names:
        if name not in mesh.sizes:
            raise UsageError(f"the mesh {mesh} has no axis {name!r}", where=flag, fix="one of " + ", ".join(mesh.sizes))
    return mesh.group(names)


def _other(text: str, mesh: Mesh) -> tuple[Collective, int]:
    kind, colon, rest = text.partition(":")
    size, _, axes = rest.partition(":")
    if not colon:
        raise UsageError(f"{text!r} is not KIND:BYTES[:AXES]", where="--with", fix="write --with all_reduce:1GiB:data")
    (bytes_,) = parse_sizes(size, "--with", several=False)
    group = _group(mesh, axes.replace("*", ",").split(",") if axes else (), "--with")
    return collective_of(kind_named(kind), bytes_, group), bytes_
