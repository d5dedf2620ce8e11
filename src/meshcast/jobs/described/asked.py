"""`Asked`: what a model is asked for once defaults, plan and stack have decided everything, by names that users know."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from meshcast.hardware import Device
from meshcast.jobs.planned.attending import Attending, attention_of
from meshcast.jobs.planned.settings import DECIDED, check_device, microbatches_of
from meshcast.jobs.serving import chunk_of, request_lengths
from meshcast.jobs.serving.chunks import CHUNK_SETTING
from meshcast.options import Options
from meshcast.programs import setting_value
from meshcast.zoo import AUTO, SERVE, Builder, Plan, text_of

_LENGTHS = ("seq", "context")  # that a model's table of positions says where nobody does


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A model of the zoo or of a configuration, in one mode.

    Attributes:
        builder: The model.
        mode: What it does; `serve` for both passes of a request.
        plan: How it is shared out, with everything that a stack or the device decided; None where a mesh says it.
        settings: What `--set` says, with everything that was decided likewise.
        said: Names of the plan's keys and of the settings that the user has written.
        attending: How it attends there, and why so; None where its mode has no choice. Of `serve` it is the prompts' pass.
    """

    builder: Builder
    mode: str
    plan: Plan | None
    settings: Mapping[str, str]
    said: frozenset[str]
    attending: Attending | None = None

    def values(self) -> dict[str, Any]:
        """Keys of the plan and settings, as they were used."""
        found: dict[str, Any] = dict(self._settings())
        if self.plan is not None:
            decided = (*DECIDED, "param_dtype") if self.mode == "train" else ()
            found = {name: value for name, value in found.items() if name not in decided or name in self.settings}
            found |= self._of_plan(self.plan)
        return found

    def _settings(self) -> Iterator[tuple[str, Any]]:
        """Settings of the mode; of the configuration those that are set alone, as the model's name says the others."""
        chosen = {name: setting_value(text) for name, text in self.settings.items()}
        own = {each.name for each in dataclasses.fields(self.builder.config)}
        known = self.builder.overrides("decode" if self.mode == SERVE else self.mode)
        positions = getattr(self.builder.configured(**chosen), "positions", None)
        for name, value in ({name: each for name, each in known.items() if name not in own} | chosen).items():
            yield name, positions if value is None and name in _LENGTHS else value
        yield "mode", self.mode
        if self.mode == SERVE:
            prompt, output = request_lengths(self.builder, self.settings)
            yield from (("prompt", prompt), ("output", output), ("context", prompt + output))
            yield CHUNK_SETTING, chunk_of(self.settings)

    def _of_plan(self, plan: Plan) -> dict[str, Any]:
        """Every key of a plan, and the batch that it makes."""
        keys = {each.name: getattr(plan, each.name) for each in dataclasses.fields(Plan) if each.name != "stack"}
        keys |= {"attention": plan.attending, "layers_per_stage": text_of(plan.layers_per_stage)}
        if self.mode != "train":  # only what shares out a program that does not train has a meaning
            return {name: keys[name] for name in ("dp", "fsdp", "tp", "sp", "ep", "attention")}
        number = microbatches_of(plan, self.settings)
        keys |= {"microbatches": number, "batch": plan.mbs * plan.batch_shards * number}
        return keys | ({"schedule": plan.pipeline_schedule} if plan.pp > 1 else {})


def asked_of(builder: Builder, options: Options, device: Device) -> Asked:
    """What a model is asked for on a device, with the attention that the device gives it where nobody says.

    Args:
        builder: The model.
        options: Everything else, with what a stack brings.
        device: What it runs on.

    Raises:
        UsageError: The model has no such mode, or a setting is none.
        UnsupportedError: The device has not what the plan needs.
    """
    given, mode = options.program, str(options.program.settings.get("mode", builder.mode))
    # Prompts are what may attend otherwise; requests are answered by both passes.
    used = options.having(settings={**given.settings, "mode": "prefill"}) if mode == SERVE else options
    plan = given.plan.value if given.plan is not None else None
    if plan is not None:
        check_device(plan, device)
    attending = attention_of(builder, used, device)
    settings, attention = used.program.settings, attending.attention if attending is not None else None
    if plan is None:
        settings = {**settings, "attention": attention} if attention is not None else dict(settings)
    elif attention is not None and plan.attention in (None, AUTO):
        plan = replace(plan, attention=attention)
    return Asked(
        builder=builder,
        mode=mode,
        plan=plan,
        settings=settings if plan is None else given.settings,
        said=(Plan.names_in(str(given.plan)) - {"stack"} if given.plan is not None else frozenset())
        | given.settings.keys(),
        attending=attending,
    )
