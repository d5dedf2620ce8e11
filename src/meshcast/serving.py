"""Models that answer: a prompt's pass, a decoding step, or with `--set mode=serve` both, as users notice them.

A request is a prompt of `prompt` tokens and an answer of `output`. The cache has room for all of them from the start, as
the program has it, so every decoding step reads a full one: the time per output token is that of the last step. Layers
have weights and caches of their own, as serving engines keep them: a scan over stacked ones copies each layer's share out
of the stack first, more than doubling the bytes of a step that reads everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.capture.target import setting_value
from meshcast.errors import UsageError
from meshcast.models import Builder, zoo
from meshcast.models.huggingface import config_path, read_builder
from meshcast.options import Options
from meshcast.results import Prediction
from meshcast.results.serving import Serving

SERVE = "serve"
PROMPT, OUTPUT = 1024, 128
_OWN = ("mode", "prompt", "output")
_LENGTHS = ("seq", "context", "target")
Predict = Callable[[Options], Prediction]


def predict_serving(target: Any, options: Options, predict: Predict) -> Prediction | None:
    """The prediction of a model that answers, with what users notice; None where the target does anything else.

    With `mode=serve` the step is the decoding step, memory that of the pass that needs more, and a pass that does not fit
    is the answer.

    Args:
        target: As `predict` takes it.
        options: All of them.
        predict: The target with other options, which is not asked this again.

    Raises:
        UsageError: The model has no such modes, or a length is none.
    """
    builder = model_named(target)
    if builder is None:
        return None
    mode = options.settings.get("mode", builder.mode)
    if mode in ("prefill", "decode"):
        prediction = predict(options)
        return replace(prediction, serving=_noticed(builder, mode, options.settings, prediction))
    return _both(builder, options, predict) if mode == SERVE else None


def serves(target: Any, options: Options) -> bool:
    """Whether a target is asked for both passes at once."""
    return options.settings.get("mode") == SERVE and model_named(target) is not None


def model_named(target: Any) -> Builder | None:
    """The model of the zoo, or of a Hugging Face configuration, that a target names."""
    if not isinstance(target, (str, Path)):
        return None
    path = Path(target)
    if not path.exists():
        return zoo().get(str(target))
    config = config_path(path) if path.is_dir() or path.suffix == ".json" else None
    return read_builder(config) if config is not None else None


def _noticed(builder: Builder, mode: str, settings: Mapping[str, str], prediction: Prediction) -> Serving | None:
    """Of one pass alone."""
    accepted = builder.overrides(mode) | {name: setting_value(text) for name, text in settings.items()}
    cache = prediction.memory.by_role.get("cache", 0)
    if prediction.step_time_s is None:
        return None
    if mode == "decode":
        return Serving(batch=accepted["batch"], cache_bytes=cache, tpot_s=prediction.step_time_s)
    # A model that knows its longest sequence has that by default.
    prompt = accepted["seq"] or getattr(builder.configured(**accepted), "positions", None)
    return Serving(batch=accepted["batch"], cache_bytes=cache, prompt_tokens=prompt, ttft_s=prediction.step_time_s)


def _both(builder: Builder, options: Options, predict: Predict) -> Prediction:
    if not {"prefill", "decode"} <= set(builder.modes):
        has = ", ".join(builder.modes)
        raise UsageError(f"{builder.name} does not answer token by token", where="--set", fix=f"its modes are {has}")
    prompt, output = _length(options.settings, "prompt", PROMPT), _length(options.settings, "output", OUTPUT)
    if clash := next((name for name in _LENGTHS if name in options.settings), None):
        raise UsageError(
            f"{clash} follows from prompt and output in mode {SERVE}", where="--set", fix="set prompt and output"
        )
    common = {name: text for name, text in options.settings.items() if name not in _OWN}
    if hasattr(builder.config, "scan"):
        common.setdefault("scan", "false")
    first, step = (
        predict(replace(options, settings={**_known(common, builder, mode), **_lengths(builder, mode, prompt, output)}))
        for mode in ("prefill", "decode")
    )
    larger = max(first, step, key=lambda each: each.memory.peak)
    answer = replace(
        step,
        name=f"{builder.name}, serving",
        memory=larger.memory,
        warnings=tuple(dict.fromkeys((*first.warnings, *step.warnings))),
    )
    if first.step_time_s is None or step.step_time_s is None:
        which = first if first.infeasible is not None else step
        return replace(which, name=answer.name, warnings=answer.warnings)
    batch = setting_value(common["batch"]) if "batch" in common else builder.overrides("decode")["batch"]
    noticed = Serving(
        batch=batch,
        cache_bytes=step.memory.by_role.get("cache", 0),
        prompt_tokens=prompt,
        output_tokens=output,
        ttft_s=first.step_time_s,
        tpot_s=step.step_time_s,
    )
    return replace(answer, serving=noticed)


def _lengths(builder: Builder, mode: str, prompt: int, output: int) -> dict[str, str]:
    """A request's lengths as a mode of the model calls them.

    A decoder's cache has room for `context` positions, prompt and answer. An encoder's input is `seq` in both modes, its
    answers are `target` positions of their own (T5). A state of one size has no length at all (Mamba).
    """
    lengths = {"seq": prompt, "context": prompt + output, "target": output}
    known = builder.overrides(mode)
    return {"mode": mode} | {name: str(length) for name, length in lengths.items() if name in known}


def _known(settings: Mapping[str, str], builder: Builder, mode: str) -> dict[str, str]:
    """The settings of one of the two modes, less those that only the other one has: how prompts attend."""
    other = builder.overrides({"prefill": "decode", "decode": "prefill"}[mode])
    known = builder.overrides(mode)
    return {name: text for name, text in settings.items() if name in known or name not in other}


def _length(settings: Mapping[str, str], name: str, default: int) -> int:
    value = setting_value(settings[name]) if name in settings else default
    if type(value) is not int or value < 1:
        raise UsageError(f"the setting {name} is a positive integer, not {value!r}", where="--set")
    return value
