"""The two passes of requests, put together.

A request is a prompt of `prompt` tokens and an answer of `output`. The cache has room for all of them from the start, as
the program has it, so every decoding step reads a full one: the time per output token is that of the last step. Layers
have weights and caches of their own, as serving engines keep them: a scan over stacked ones copies each layer's share out
of the stack first, more than doubling the bytes of a step that reads everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshcast.base import UsageError
from meshcast.jobs.serving.chunks import (
    CHUNK_SETTING,
    Pass,
    batch_shards,
    beside_all_caches,
    chunk_of,
    flops_of,
    passes_over,
    time_of,
    with_whole_cache,
)
from meshcast.options import Options
from meshcast.programs import setting_value, whole_setting
from meshcast.results import Prediction, Serving
from meshcast.zoo import ANSWERING, SERVE, Builder

if TYPE_CHECKING:
    from meshcast.jobs.program.job import ProgramJob

PROMPT, OUTPUT = 1024, 128
_OWN = ("mode", "prompt", "output", CHUNK_SETTING)
_LENGTHS = ("seq", "context", "target")


def predict_requests(builder: Builder, options: Options, pass_job: Callable[[Options], ProgramJob]) -> Prediction:
    """The prediction of a model that answers requests, with what users notice.

    The step is the decoding step, memory that of the pass that needs more, and a pass that does not fit is the answer. All
    passes are judged by their memory before any is timed. Where one does not fit, no pass is timed but those that the answer
    is about: the decoding step and the largest pass over prompts, where they fit by themselves, as the answer has their warnings.

    Args:
        builder: The model.
        options: What is asked for, with `mode=serve`.
        pass_job: The job of one pass, from its options.

    Raises:
        UsageError: The model has no such modes, or a length is none.
    """
    if not {"prefill", "decode"} <= set(builder.modes):
        has = ", ".join(builder.all_modes)
        raise UsageError(f"{builder.name} does not answer token by token", where="--set", fix=f"its modes are {has}")
    if clash := next((name for name in _LENGTHS if name in options.program.settings), None):
        raise UsageError(
            f"{clash} follows from prompt and output in mode {SERVE}", where="--set", fix="set prompt and output"
        )
    prompt, output = request_lengths(builder, options.program.settings)
    common = {name: text for name, text in options.program.settings.items() if name not in _OWN}

    def asked(mode: str, **changed: int) -> ProgramJob:
        settings = {**_known(common, builder, mode), **_lengths(builder, mode, prompt, output)}
        settings |= {name: str(value) for name, value in changed.items()}
        return pass_job(_of_pass(options, mode).having(settings=settings))

    decoding = asked("decode")
    batch = whole_setting(common, "batch") or builder.overrides("decode")["batch"]
    known = builder.overrides("prefill")
    chunk = chunk_of(options.program.settings)
    passes = passes_over(batch, prompt, chunk, batch_shards(options.program), resumes="past" in known)
    cache = decoding.run.memory.by_role.get("cache", 0)
    reading = [asked("prefill", **_changed(each, prompt, known)) for each in passes]
    held = [beside_all_caches(job.run.memory, cache) for job in reading]
    full = [
        job.run.verdict is not None or memory.peak > job.run.capacity for job, memory in zip(reading, held, strict=True)
    ]
    largest = max(range(len(reading)), key=lambda number: (full[number], held[number].peak))
    step = decoding.predict()
    first = with_whole_cache(reading[largest].predict(), cache)
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
    read = [first if job is reading[largest] else with_whole_cache(job.predict(), cache) for job in reading]
    noticed = Serving(
        batch=batch,
        cache_bytes=cache,
        prompt_tokens=prompt,
        output_tokens=output,
        ttft_s=time_of(passes, read),
        tpot_s=step.step_time_s,
        passes=round(sum(each.times for each in passes)),
        chunk_tokens=chunk,
        model_flops=flops_of(passes, read) + (output - 1) * (step.model_flops or 0.0),
    )
    return replace(answer, serving=noticed)


def _of_pass(options: Options, mode: str) -> Options:
    """The options of one of the two passes: prompts are split by position where the plan says so, single positions are not."""
    if options.program.plan is None or mode == "prefill":
        return options
    return options.having(plan=replace(options.program.plan.value, sp=False))


def with_noticed(prediction: Prediction, builder: Builder, mode: str, settings: Mapping[str, str]) -> Prediction:
    """The prediction of one pass alone, with what users notice of it; of any other mode as it is.

    Args:
        prediction: Of the pass.
        builder: The model.
        mode: What it does.
        settings: What `--set` says.
    """
    if mode not in ANSWERING:
        return prediction
    return replace(prediction, serving=_noticed(builder, mode, settings, prediction))


def _noticed(builder: Builder, mode: str, settings: Mapping[str, str], prediction: Prediction) -> Serving | None:
    """The figures that users notice, of one pass alone."""
    accepted = builder.overrides(mode) | {name: setting_value(text) for name, text in settings.items()}
    cache = prediction.memory.by_role.get("cache", 0)
    if prediction.step_time_s is None:
        return None
    if mode == "decode":
        return Serving(batch=accepted["batch"], cache_bytes=cache, tpot_s=prediction.step_time_s)
    # A model that knows its longest sequence has that by default.
    prompt = accepted["seq"] or getattr(builder.configured(**accepted), "positions", None)
    return Serving(batch=accepted["batch"], cache_bytes=cache, prompt_tokens=prompt, ttft_s=prediction.step_time_s)


def _changed(each: Pass, prompt: int, known: Mapping[str, Any]) -> dict[str, int]:
    """The settings of a pass that are not those of all prompts at once."""
    whole = {"batch": each.batch}
    return whole if each.tokens == prompt or "past" not in known else whole | {"seq": each.tokens, "past": each.past}


def request_lengths(builder: Builder, settings: Mapping[str, str]) -> tuple[int, int]:
    """Tokens of a prompt and of its answer, as set; by default `PROMPT` and `OUTPUT`, or what a model's positions leave room for.

    Raises:
        UsageError: One is no positive integer, or the model has fewer positions than both together.
    """
    prompt, output = whole_setting(settings, "prompt"), whole_setting(settings, "output")
    read = {name: setting_value(text) for name, text in settings.items()}
    room = getattr(builder.configured(**read), "positions", None)
    if room is None:
        return prompt or PROMPT, output or OUTPUT
    # Half of a short table at least is the prompt's; what is set takes from what is not.
    answer = output or max(1, min(OUTPUT, room // 2, room - (prompt or 1)))
    asked = prompt or max(1, min(PROMPT, room - answer))
    if asked + answer > room:
        raise UsageError(
            f"prompt={asked} and output={answer} are {asked + answer} positions, and {builder.name} has {room}",
            where="--set",
            fix=f"set prompt and output to {room} together at most, or positions={asked + answer} too",
        )
    return asked, answer


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
