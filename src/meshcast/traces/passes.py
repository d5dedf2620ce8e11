"""Traces of a model that answers requests: one of each of its passes, each under a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshcast.jobs import ServingJob, asks_to_serve, check_drawable, resolve_job
from meshcast.traces.request import Teller, TraceRequest, Written


def served(request: TraceRequest) -> ServingJob | None:
    """The model that a trace is asked of where it answers requests; None of anything else."""
    if not asks_to_serve(request.options):
        return None
    found = resolve_job(request.target, request.options)
    return found if isinstance(found, ServingJob) else None


def write_passes(
    form: str, job: ServingJob, request: TraceRequest, write: Callable[[TraceRequest, Teller], Written], said: Teller
) -> Written:
    """Writes a trace of every pass: `OUT` with the pass's name before its ending.

    Args:
        form: The name of the format.
        job: The model that answers.
        request: What is asked for of all passes.
        write: What writes one trace in that format.
        said: Told what is going on.

    Raises:
        InfeasibleError: A pass does not fit into the devices' memory; nothing is written then.
    """
    passes = list(job.passes.named())
    for _, _, program in passes:
        check_drawable(program.run)
    lines: list[str] = []
    summaries: list[dict[str, Any]] = []
    for name, each, program in passes:
        out = pass_path(request.out, name, prefix=form == "chakra")
        written = write(replace(request, options=program.given, out=out), said)
        lines += (f"{name} ({each.described}):", *written.lines)
        summaries.append({"name": name, "times": each.times, **written.summary})
    return Written(lines=tuple(lines), summary={"format": form, "passes": summaries})


def pass_path(out: Path, name: str, *, prefix: bool) -> Path:
    """The place of a pass's trace: `a.json.gz` becomes `a.decode.json.gz`, and a prefix `a` becomes `a.decode`."""
    packed = ".gz" if out.name.endswith(".gz") else ""
    stem, dot, ending = out.name.removesuffix(packed).rpartition(".")
    if prefix or not stem:
        return out.with_name(f"{out.name}.{name}")
    return out.with_name(f"{stem}.{name}{dot}{ending}{packed}")
