"""The passes of requests: how often each runs, with which job; prompts are read by some, and every token has a step.

A request is a prompt of `prompt` tokens and an answer of `output`. The cache has room for all of them from the start, as
the program has it, so every decoding step reads a full one: the time per output token is that of the last step. Layers
have weights and caches of their own, as serving engines keep them: a scan over stacked ones copies each layer's share out
of the stack first, more than doubling the bytes of a step that reads everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from meshcast.base import UsageError
from meshcast.jobs.serving.chunks import CHUNK_SETTING, Pass, batch_shards, chunk_of, passes_over
from meshcast.options import Options
from meshcast.programs import setting_value, whole_setting
from meshcast.zoo import SERVE, Builder

if TYPE_CHECKING:
    from meshcast.jobs.program.job import ProgramJob

PROMPT, OUTPUT = 1024, 128
_OWN = ("mode", "prompt", "output", CHUNK_SETTING)
_LENGTHS = ("seq", "context", "target")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPasses:
    """What answers requests.

    Attributes:
        batch: Requests, on all devices.
        prompt: Tokens of each prompt.
        output: Tokens of each answer.
        chunk: Tokens of a pass over prompts for each share of the batch.
        decoding: The step that every token of an answer but the first has.
        reading: The passes over prompts, each with its job.
    """

    batch: int
    prompt: int
    output: int
    chunk: int
    decoding: ProgramJob
    reading: tuple[tuple[Pass, ProgramJob], ...]

    def named(self) -> Iterator[tuple[str, Pass, ProgramJob]]:
        """Every pass with a name of its own and how often it runs: `prefill`, or `prefill-1` and on, then `decode`."""
        for number, (each, job) in enumerate(self.reading, start=1):
            yield (f"prefill-{number}" if len(self.reading) > 1 else "prefill"), each, job
        step = Pass(times=self.output - 1, batch=self.batch, tokens=1, past=self.prompt + self.output - 1)
        yield "decode", step, self.decoding


def request_passes(builder: Builder, options: Options, pass_job: Callable[[Options], ProgramJob]) -> RequestPasses:
    """The passes of a model that answers requests; none is predicted yet.

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
    return RequestPasses(
        batch=batch,
        prompt=prompt,
        output=output,
        chunk=chunk,
        decoding=decoding,
        reading=tuple((each, asked("prefill", **_changed(each, prompt, known))) for each in passes),
    )


def _of_pass(options: Options, mode: str) -> Options:
    """The options of one of the two passes: prompts are split by position where the plan says so, single positions are not."""
    if options.program.plan is None or mode == "prefill":
        return options
    return options.having(plan=replace(options.program.plan.value, sp=False))


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
