"""What takes memory in a model that does not fit, and what would make it smaller, in the words of plans and settings.

Changes are found here and not tried: of what takes most memory those that make it smaller, each as a plan would have it, and
none that the plan has already or that the model cannot have. Whether one is enough is for a prediction to say
(`jobs.levers.fitting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshcast.base import MeshcastError, format_bytes
from meshcast.hardware import Device
from meshcast.jobs.planned.attending import unfused
from meshcast.jobs.planned.settings import check, check_device, step_settings
from meshcast.options import Options
from meshcast.programs import setting_value
from meshcast.results import Infeasible, Prediction
from meshcast.zoo import Builder, Plan, text_of

_STATE = ("parameter", "gradients", "optimizer_state")
_MUCH = 4  # a part of memory is worth a line from one in so many of what there is on
_MUCH_IN_FLIGHT = ("gpipe", "zb-h2")  # schedules that hold what more microbatches saved than 1f1b does


def with_memory_parts(
    prediction: Prediction,
    builder: Builder,
    plan: Plan,
    options: Options,
    device: Device,
    *,
    named: bool = True,
) -> Prediction:
    """A prediction whose levers, where it does not fit, say what takes most memory.

    Args:
        prediction: The prediction of the model under the plan.
        builder: The model.
        plan: How it is shared out.
        options: What it was predicted with.
        device: What it does not fit into.
        named: Whether changes of the plan's own keys are named too, untried.
    """
    problem = prediction.infeasible
    if problem is None:
        return prediction
    parts = [
        (what, size, ways)
        for what, size, ways in memory_parts(prediction, builder, plan, options, device)
        if _MUCH * size > problem.bound
    ]
    said = [
        f"{what} take {format_bytes(size)} of a device"
        + (f": {', '.join(map(_words, ways))}" if ways and named else "")
        for what, size, ways in parts
    ]
    stage = problem.levers[:1] if plan.pp > 1 else ()  # which one it is
    return replace(prediction, infeasible=replace(problem, levers=(*stage, *said, _larger(problem))))


def memory_parts(
    prediction: Prediction, builder: Builder, plan: Plan, options: Options, device: Device
) -> list[MemoryPart]:
    """What takes memory, how much, and the changes that would make it smaller; arguments as of `with_memory_parts`."""
    chosen: dict[str, Any] = {name: setting_value(text) for name, text in options.program.settings.items()}
    mode = chosen.pop("mode", builder.mode)
    changes = _Changes(
        builder=builder,
        plan=plan,
        settings=chosen,
        device=device,
        mode=mode,
        fused=not unfused(
            builder, options.program.settings, device, options.lowering.attention_library, precision=plan.precision
        ),
    )
    return list(_of_training(prediction, changes) if mode == "train" else _of_inference(prediction, changes))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryWay:
    """A change: keys of the plan with their new values and those that they have now, or only words."""

    keys: Mapping[str, Any]
    now: Mapping[str, Any]
    words: str = ""


MemoryPart = tuple[str, int, list[MemoryWay]]


def _words(way: MemoryWay) -> str:
    keys = ", ".join(f"{key}={text_of(value)} (now {text_of(way.now[key])})" for key, value in way.keys.items())
    return " ".join(filter(None, (keys, way.words)))


def _said(words: str) -> MemoryWay:
    return MemoryWay(keys={}, now={}, words=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """Changes of a plan that its model and its device can have."""

    builder: Builder
    plan: Plan
    settings: Mapping[str, Any]
    device: Device
    mode: str
    fused: bool

    def named(self, *wanted: Mapping[str, Any]) -> list[MemoryWay]:
        """The changes that differ from the plan and that the model can have, as keys of a plan."""
        return [
            MemoryWay(keys=change, now={key: self._now(key) for key in change})
            for change in wanted
            if any(self._now(key) != value for key, value in change.items()) and self._possible(change)
        ]

    def twice(self, *keys: str) -> list[MemoryWay]:
        """Degrees doubled."""
        return self.named(*({key: 2 * getattr(self.plan, key)} for key in keys))

    def _now(self, key: str) -> Any:
        return self.plan.attending if key == "attention" else getattr(self.plan, key)

    def _possible(self, change: Mapping[str, Any]) -> bool:
        """Whether model and plan go together so; the batch may have to be another one."""
        if "attention" in change and (not self.fused or self.plan.attending.startswith("flash")):
            return False
        if {"pp", "offload"} & change.keys() and not self._can_be_cut(change):
            return False
        settings = {name: value for name, value in self.settings.items() if name != "batch"}
        try:
            changed = replace(self.plan, **change, layers_per_stage=())
            check_device(changed, self.device)
            whole = replace(changed, pp=1, vp=1, schedule=None, microbatches=None, offload="none")
            if self.mode == "train":
                step_settings(whole, self.builder, settings)
            else:
                check(whole, self.builder, settings, mode=self.mode)
        except MeshcastError:
            return False
        return True

    def _can_be_cut(self, change: Mapping[str, Any]) -> bool:
        module = self.builder.family
        parts = change.get("pp", 1) * self.plan.vp
        return hasattr(module, "sections") and self.builder.configured(**self.settings).layers % parts == 0


def _of_training(prediction: Prediction, changes: _Changes) -> Iterator[MemoryPart]:
    """(what, bytes, what would make it smaller)."""
    memory, plan = prediction.memory, changes.plan
    yield (
        "activations and other temporaries",
        memory.temporaries,
        [
            *changes.named(
                *([] if plan.remat == "whole" else [{"remat": "full"}]),  # which keeps as little
                {"attention": "flash-all-gather" if plan.cp > 1 else "flash"},
                {"mbs": plan.mbs // 2 if plan.mbs % 2 == 0 else 1},
                *([{"sp": True}] if plan.tp > 1 else []),
                *([{"schedule": "1f1b"}] if plan.schedule in _MUCH_IN_FLIGHT else []),
                {"gradients": "bf16"},
                *([{"offload": "activations"}] if plan.pp == 1 and plan.offload == "none" else []),
            ),
            *changes.twice("tp", "cp"),
        ],
    )
    zero = 1 if plan.pp > 1 else 3
    yield (
        "weights, gradients and the optimizer's state",
        sum(memory.by_role.get(role, 0) for role in _STATE),
        [
            *changes.named(*([{"zero": zero}] if plan.dp > 1 and plan.zero < zero else [])),
            *changes.twice("fsdp", "tp", "pp", "ep"),
            *changes.named(*([{"offload": "optimizer"}] if plan.offload == "none" else [])),
        ],
    )


def _of_inference(prediction: Prediction, changes: _Changes) -> Iterator[MemoryPart]:
    """The parts of an inference step's memory, weights and requests, with the changes that make them smaller."""
    memory = prediction.memory
    fewer = [_said("a smaller batch"), *(replace(way, words="for the same batch") for way in changes.twice("dp"))]
    yield "weights", memory.by_role.get("parameter", 0), changes.twice("tp", "ep", "fsdp")
    yield "caches", memory.by_role.get("cache", 0), [*fewer, _said("shorter prompts and answers"), *changes.twice("tp")]
    fused = changes.named({"attention": "flash"})
    yield "temporaries", memory.temporaries, [*fused, *fewer, _said("shorter prompts"), *changes.twice("tp")]


def _larger(problem: Infeasible) -> str:
    more = f"{problem.demand / problem.bound:.1f} times as many devices"
    return f"use {more}, or devices with at least {format_bytes(problem.demand)}"
