"""What a pipeline's prediction says about communication: the mean over its stages, by group and by level of the network.

Groups inside of programs come from these programs' own predictions; messages between stages are the group `pipeline`, and
the reduction of gradients with the gathering of parameters that of its axes. Exposed seconds add up to the breakdown's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from meshcast.hardware import Cluster
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.jobs.pipeline.step import Message, StepParts
from meshcast.network import CollectivePlan
from meshcast.results import Communication, GroupShare, LinkUse, ScheduleUsed, link_use
from meshcast.simulate import PipelineRun, Segment, SegmentKind, Slowdown

Counted = Iterable[tuple[PartEstimate, str, int]]  # a part's estimate, one of its programs, how often a step runs it

NOTHING_TO_ORDER = ScheduleUsed(scheduler="program", channels=0, contention="none")  # programs without collectives


def pipeline_communication(counted: Counted, step: StepParts, run: PipelineRun, cluster: Cluster) -> Communication:
    """The communication of a step."""
    programs = [(found, n) for e, name, n in counted if (found := e.predictions[name].communication) is not None]
    stages = step.schedule.stages
    groups: dict[str, GroupShare] = {}
    for found, times in programs:
        for group in found.groups:
            _add(groups, group, times / stages)
    for group in _between_stages(step, run):
        _add(groups, group, 1 / stages)
    slowdown = sum((found.slowdown * (times / stages) for found, times in programs), start=Slowdown())
    return Communication(
        groups=tuple(sorted(groups.values(), key=lambda share: (-share.exposed_s, -share.busy_s))),
        links=_links(programs, step, run, cluster),
        schedule=programs[0][0].schedule if programs else NOTHING_TO_ORDER,
        slowdown=slowdown,
        critical=tuple(_segments(run)),
    )


def _add(groups: dict[str, GroupShare], more: GroupShare, times: float) -> None:
    known = groups.get(more.group)
    groups[more.group] = GroupShare(
        group=more.group,
        group_size=more.group_size,
        busy_s=times * more.busy_s + (known.busy_s if known else 0.0),
        exposed_s=times * more.exposed_s + (known.exposed_s if known else 0.0),
        overlapped_s=times * more.overlapped_s + (known.overlapped_s if known else 0.0),
    )


def _between_stages(step: StepParts, run: PipelineRun) -> Iterator[GroupShare]:
    """Communication between stages and between replicas: messages, reductions of gradients, gathers of parameters."""
    many = step.schedule.microbatches
    sent = [message for message in (*step.forward, *step.backward) if message is not None]
    if sent:
        yield _share("pipeline", 2, many * _seconds(sent), sum(stage.sending for stage in run.stages))
    reduced = [message for message in (*step.reductions, *step.gathers) if message is not None]
    late = [each.share for estimate in step.estimates for each in estimate.deferred]
    gathered = _seconds(message for message in step.gathers if message is not None)
    busy = _seconds(reduced) - gathered + sum(share.seconds for share in late)
    waited = sum(stage.reducing for stage in run.stages) / busy if busy else 0.0  # a share of each
    if reduced:
        group = reduced[0].collective.group
        exposed = gathered + waited * (_seconds(reduced) - gathered)
        yield _share(str(group), group.size, _seconds(reduced), exposed)
    for share in late:
        yield _share(share.group, share.group_size, share.seconds, waited * share.seconds)
    tied = _seconds(message for message in step.ties if message is not None)
    if tied:
        yield _share("pipeline", 2, tied, tied)


def _share(group: str, size: int, busy: float, exposed: float) -> GroupShare:
    return GroupShare(
        group=group, group_size=size, busy_s=busy, exposed_s=exposed, overlapped_s=max(0.0, busy - exposed)
    )


def _seconds(messages: Iterable[Message]) -> float:
    return sum(message.seconds for message in messages)


def _links(
    programs: Iterable[tuple[Communication, int]], step: StepParts, run: PipelineRun, cluster: Cluster
) -> tuple[LinkUse, ...]:
    stages, many = step.schedule.stages, step.schedule.microbatches
    messages: list[tuple[CollectivePlan, float]] = [
        (message.plan, times / stages)
        for row, times in (
            (step.forward, many),
            (step.backward, many),
            (step.reductions, 1),
            (step.gathers, 1),
            (step.ties, 1),
        )
        for message in row
        if message is not None
    ]
    messages += [(late.plan, late.share.count / stages) for estimate in step.estimates for late in estimate.deferred]
    inside: dict[str, float] = {}
    for found, times in programs:
        for link in found.links:
            inside[link.level] = inside.get(link.level, 0.0) + link.bytes_sent * times / stages
    return link_use(messages, cluster, run.duration, inside)


def _segments(run: PipelineRun) -> Iterator[Segment]:
    for segment in run.critical_path:
        kind: SegmentKind = (
            "communication" if segment.what in ("send", "gradient reduction", "tied gradients") else "compute"
        )
        yield Segment(kind=kind, what=f"stage {segment.stage}: {segment.what}", seconds=segment.seconds)
