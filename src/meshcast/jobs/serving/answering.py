"""What users notice of requests: the passes over prompts and the decoding step, put together (`jobs.serving.passes`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshcast.jobs.program.feasibility import memory_verdict
from meshcast.jobs.serving.chunks import beside_all_caches, flops_of, time_of, with_whole_cache
from meshcast.jobs.serving.passes import RequestPasses
from meshcast.programs import setting_value
from meshcast.results import Prediction, Serving
from meshcast.zoo import ANSWERING, Builder


def predict_requests(builder: Builder, asked: RequestPasses) -> Prediction:
    """The prediction of a model that answers requests, with what users notice.

    The step is the decoding step, memory that of the pass that needs more, and a pass that does not fit is the answer. All
    passes are judged by their memory before any is timed. Where one does not fit, none is timed.

    Args:
        builder: The model.
        asked: The passes.
    """
    decoding, passes = asked.decoding, [each for each, _ in asked.reading]
    reading = [job for _, job in asked.reading]
    name = f"{builder.name}, serving"
    cache = decoding.run.memory.by_role.get("cache", 0)
    held = [beside_all_caches(job.run.memory, cache) for job in reading]
    full = [
        job.run.verdict is not None or memory.peak > job.run.capacity for job, memory in zip(reading, held, strict=True)
    ]
    largest = max(range(len(reading)), key=lambda number: (full[number], held[number].peak))
    if full[largest] or decoding.run.verdict is not None:
        first, step = reading[largest].untimed(), decoding.untimed()
        if full[largest]:
            verdict = first.infeasible or memory_verdict(
                held[largest], first.capacity_bytes, spread="shared" if first.devices > 1 else "whole"
            )
            first = replace(first, memory=held[largest], infeasible=verdict)
        which = first if full[largest] else step
        return replace(which, name=name, warnings=tuple(dict.fromkeys((*first.warnings, *step.warnings))))
    step = decoding.predict()
    read = [with_whole_cache(job.predict(), cache) for job in reading]
    first = read[largest]
    larger = max(first, step, key=lambda each: each.memory.peak)
    noticed = Serving(
        batch=asked.batch,
        cache_bytes=cache,
        prompt_tokens=asked.prompt,
        output_tokens=asked.output,
        ttft_s=time_of(passes, read),
        tpot_s=step.step_time_s,
        passes=round(sum(each.times for each in passes)),
        chunk_tokens=asked.chunk,
        model_flops=flops_of(passes, read) + (asked.output - 1) * (step.model_flops or 0.0),
    )
    return replace(
        step,
        name=name,
        memory=larger.memory,
        warnings=tuple(dict.fromkeys((*first.warnings, *step.warnings))),
        serving=noticed,
    )


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
