"""How prompts are read: a chunk of tokens at a time, as serving engines schedule them, so that activations stay small.

A pass has up to `prefill_chunk` tokens for each share of the batch: as many whole prompts as fit, or a part of one that is
longer, whose tokens attend to what the cache has of those before. Engines read 8,192 at a time unless they are told otherwise:
SGLang's `--chunked-prefill-size` on GPUs of 80 GB, TensorRT-LLM's `max_num_tokens`, vLLM's `max_num_batched_tokens` of its
server (each in the engine's documentation of its arguments).

Products of a chunk do not depend on what is before it, and its scores grow with it evenly; so the time of chunk i of n is
`t_1 + (i - 1) / (n - 1) (t_n - t_1)`, all of them together take `n (t_1 + t_n) / 2`, and two are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from meshcast.jobs.program.feasibility import memory_verdict
from meshcast.options import ProgramOptions
from meshcast.programs import whole_setting
from meshcast.results import Prediction
from meshcast.simulate import MemoryUse
from meshcast.zoo import BATCH

CHUNK_SETTING = "prefill_chunk"
CHUNK = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """Passes over prompts that take the same time.

    Attributes:
        times: How many; of the two ends of a long prompt half of what lies between them each.
        batch: Prompts that it reads, on all devices.
        tokens: Tokens that it reads of each prompt.
        past: Tokens of each that earlier passes have read.
    """

    times: float
    batch: int
    tokens: int
    past: int = 0

    @property
    def described(self) -> str:
        """How often it runs and what it reads, in words."""
        often = "once" if self.times == 1 else f"{self.times:g} times"
        behind = f" behind {self.past:,}" if self.past else ""
        return f"{often}, batch {self.batch:,}, {self.tokens:,} token{'s' if self.tokens != 1 else ''} each{behind}"


def chunk_of(settings: Mapping[str, Any]) -> int:
    """Tokens of a pass for each share of the batch, as set or as engines have it.

    Raises:
        UsageError: It is no positive integer.
    """
    return whole_setting(settings, CHUNK_SETTING) or CHUNK


def batch_shards(program: ProgramOptions) -> int:
    """Devices, or groups of them, that read prompts of their own."""
    if program.plan is not None:
        return program.plan.value.batch_shards
    sizes = program.mesh or {}
    return math.prod(sizes.get(axis, 1) for axis in BATCH)


def passes_over(batch: int, prompt: int, chunk: int, shards: int, *, resumes: bool) -> list[Pass]:
    """The passes that read all prompts.

    Args:
        batch: Prompts, on all devices.
        prompt: Tokens of each.
        chunk: Tokens of a pass for each share of the batch.
        shards: Shares of the batch.
        resumes: Whether the model can read a prompt in parts; else a pass has one whole prompt at least.
    """
    if prompt <= chunk or not resumes:
        each = shards * max(1, chunk // prompt)
        whole, rest = divmod(batch, each)
        found = [Pass(times=whole, batch=each, tokens=prompt), Pass(times=1 if rest else 0, batch=rest, tokens=prompt)]
        return [each for each in found if each.times]
    groups = -(-batch // shards)
    together = min(batch, shards)
    parts, rest = divmod(prompt, chunk)
    last = (parts - 1) * chunk
    found = [
        Pass(times=groups * (parts / 2 if last else 1), batch=together, tokens=chunk),
        Pass(times=groups * parts / 2 if last else 0, batch=together, tokens=chunk, past=last),
        Pass(times=groups if rest else 0, batch=together, tokens=rest, past=parts * chunk),
    ]
    return [each for each in found if each.times]


def beside_all_caches(memory: MemoryUse, cache: int) -> MemoryUse:
    """What a pass over some of the prompts holds beside the caches of all of them.

    Args:
        memory: The memory of the pass, which has room for its own prompts.
        cache: Bytes of all caches on a device.
    """
    more = max(0, cache - memory.by_role.get("cache", 0))
    return replace(
        memory,
        peak=memory.peak + more,
        arguments=memory.arguments + more,
        outputs=memory.outputs + more,
        aliased=memory.aliased + more,  # it is updated in place
        by_role={**memory.by_role, "cache": memory.by_role.get("cache", 0) + more},
    )


def with_whole_cache(prediction: Prediction, cache: int) -> Prediction:
    """A pass over some of the prompts beside the caches of all of them, and whether it still fits.

    Args:
        prediction: Of the pass.
        cache: Bytes of all caches on a device.
    """
    memory = beside_all_caches(prediction.memory, cache)
    found = replace(prediction, memory=memory)
    if prediction.timed is None:
        return found
    verdict = memory_verdict(memory, prediction.capacity_bytes, spread="shared" if prediction.devices > 1 else "whole")
    return found if verdict is None else replace(found, infeasible=verdict, timed=None)


def time_of(passes: Sequence[Pass], predictions: Sequence[Prediction]) -> float:
    """Until the last prompt is read: all passes, one after the other."""
    return sum(each.times * (found.step_time_s or 0.0) for each, found in zip(passes, predictions, strict=True))


def flops_of(passes: Sequence[Pass], predictions: Sequence[Prediction]) -> float:
    """The model's own matrix FLOPs of a device until the last prompt is read."""
    return sum(each.times * (found.model_flops or 0.0) for each, found in zip(passes, predictions, strict=True))
