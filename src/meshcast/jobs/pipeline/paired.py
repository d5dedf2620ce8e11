"""Exchanges of experts beside another microbatch's layers: a forward pass and a backward pass run together.

With interleaved stages Megatron can put the layers of one microbatch's forward pass beside those of another's backward pass,
so that tokens of one travel while the other computes (`overlap_moe_expert_parallel_comm`; DeepSeek-AI 2024, section 3.2.1,
has the same idea). Passes that take F and B alone, x of it waiting for exchanges that are under way for y seconds in all, take

    max(C + c min(y, C), y),   C = F + B - x

together, c being the share of the device's cores that an exchange keeps busy (`[communication] cores`). A stage has pairs
from when its first backward pass can begin: not in the 2 (p - 1) + (v - 1) g passes before, of v m, that p interleaved stages
of v parts warm up with, g microbatches in a group (p of them: Narayanan 2021). What is hidden is taken off the passes as far as
each waits.
"""

from __future__ import annotations

from dataclasses import replace

from meshcast.hardware import Device
from meshcast.jobs.pipeline.definition import Pipeline
from meshcast.jobs.pipeline.parts import PartEstimate
from meshcast.results import Prediction
from meshcast.simulate import interleaved_group

_PASSES = ("forward", "backward")


def with_paired_passes(estimate: PartEstimate, pipeline: Pipeline, device: Device) -> PartEstimate:
    """A part whose exchanges are hidden as far as its two passes have something to hide them behind."""
    found = {name: estimate.predictions[name] for name in _PASSES}
    share = _steady(pipeline)
    if not share or "weight" in estimate.programs or any(p.step_time_s is None for p in found.values()):
        return estimate
    alone = sum(p.step_time_s or 0.0 for p in found.values())
    waiting = {name: _exchanged(p)[1] for name, p in found.items()}
    under_way, waited = sum(_exchanged(p)[0] for p in found.values()), sum(waiting.values())
    hidden = share * max(0.0, alone - paired_seconds(alone - waited, under_way, device)) if waited else 0.0
    if not hidden:
        return estimate
    shorter = {name: _shorter(p, hidden * waiting[name] / waited) for name, p in found.items()}
    return replace(estimate, predictions={**estimate.predictions, **shorter}, paired_s=hidden)


def paired_seconds(computing: float, exchanging: float, device: Device) -> float:
    """Seconds of two passes together, of their compute and of exchanges that take cores from it."""
    taken = device.communication.cores / device.cores if device.communication is not None else 0.0
    return max(computing + taken * min(exchanging, computing), exchanging)


def _steady(pipeline: Pipeline) -> float:
    """The passes of a stage that have a partner: none without interleaved stages."""
    stages, parts = pipeline.stages, pipeline.virtual_stages
    if parts < 2:
        return 0.0
    group = interleaved_group(stages, pipeline.microbatches) or stages
    return max(0.0, 1 - (2 * (stages - 1) + (parts - 1) * group) / (parts * pipeline.microbatches))


def _exchanged(prediction: Prediction) -> tuple[float, float]:
    """Seconds that groups with exchanges of tokens communicate, and those that nothing hides."""
    groups = {share.group for share in prediction.collectives if share.kind == "all_to_all"}
    shares = prediction.communication.groups if prediction.communication is not None else ()
    mine = [share for share in shares if share.group in groups]
    return sum(share.busy_s for share in mine), sum(share.exposed_s for share in mine)


def _shorter(prediction: Prediction, hidden: float) -> Prediction:
    """A pass with so many seconds less of exposed communication."""
    timed = prediction.timed
    assert timed is not None
    said = timed.communication
    assert said is not None
    before, after, (low, high) = timed.step_time_s, timed.step_time_s - hidden, timed.interval_s
    groups = {share.group for share in timed.collectives if share.kind == "all_to_all"}
    exposed = sum(share.exposed_s for share in said.groups if share.group in groups)
    kept = 1 - hidden / exposed if exposed else 1.0
    shorter = replace(
        timed,
        step_time_s=after,
        interval_s=(low * after / before, high * after / before),
        breakdown=replace(timed.breakdown, exposed_communication=timed.breakdown.exposed_communication - hidden),
        mfu=None if timed.mfu is None else timed.mfu * before / after,
        hfu=None if timed.hfu is None else timed.hfu * before / after,
        communication=replace(
            said,
            groups=tuple(
                replace(s, exposed_s=kept * s.exposed_s, overlapped_s=s.busy_s - kept * s.exposed_s)
                if s.group in groups
                else s
                for s in said.groups
            ),
        ),
    )
    return replace(prediction, timed=shorter)
