"""`meshcast show TARGET`: the workload, or its kernels after lowering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed, model_names
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.patience import patience

if TYPE_CHECKING:
    from meshcast.jobs import PipelineJob, ProgramJob, Run, ServingJob, TraceJob


@runs(
    "program",
    "lowering",
    "estimate",
    "network",
    "run",
    without={
        "devices": "what one device sees is shown, of the program's own mesh",
        "levers": "nothing is predicted",
        "what_if": "nothing is predicted",
    },
)
def show_command(
    target: Annotated[
        str,
        typer.Argument(
            autocompletion=completed(model_names),
            metavar="TARGET",
            help="A file, module:function, or a model of the zoo.",
        ),
    ],
    kernels: Annotated[bool, typer.Option("--kernels", help="Kernels after lowering, with their times.")] = False,
    partitioned: Annotated[
        bool, typer.Option("--partitioned", help="The program of one device, as MLIR text.")
    ] = False,
    explain: Annotated[
        int | None, typer.Option("--explain", help="With --kernels: the formula and numbers behind row N.", metavar="N")
    ] = None,
    analysis: Annotated[
        bool,
        typer.Option(
            "--analysis", help="Of traces: where the recorded time goes on all ranks: idle, exposed, critical path."
        ),
    ] = False,
    faster: Annotated[
        list[str] | None,
        typer.Option(
            "--faster",
            metavar="WHAT=TIMES",
            help="With --analysis: if a class of kernels, collective, host, pause or delay were so many times as fast (or inf).",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Rows to print.", min=1)] = 40,
    *,
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Shows ops, FLOPs, bytes, loops and collectives of TARGET, as one device sees it."""
    from meshcast.base import UsageError
    from meshcast.jobs import PipelineJob, ServingJob, TraceJob, one_program, resolve_job

    if explain is not None and not kernels:
        raise UsageError("--explain is about a row of the kernels' table", where="--explain", fix="add --kernels")
    # Without --kernels it is the program's own ops that are shown, not what a compiler made of them.
    own_ops = not kernels and "lowering" not in asked.written
    options = asked.options(lowering="modelled") if own_ops else asked.options()
    if partitioned and (options.program.trip_counts or kernels or json):
        raise UsageError("--partitioned prints the program alone", fix="leave out --trip-count, --kernels and --json")
    job = resolve_job(target, options)
    if not kernels and (partitioned or not isinstance(job, PipelineJob)):
        _refuse_timing(asked)
    match job:
        case TraceJob():
            if kernels or partitioned:
                raise UsageError(
                    "of a trace its nodes are shown", where=target, fix="leave out --kernels and --partitioned"
                )
            _show_trace(job, limit=limit, analysis=analysis, faster=faster or [], json=json)
        case _ if analysis or faster:
            raise UsageError(
                "--analysis is of traces, and this is none", where=target,
                fix="name the traces (PREFIX of PREFIX.RANK.et); of a prediction meshcast report tells it",
            )  # fmt: skip
        case PipelineJob() | ServingJob() if explain is not None:
            raise UsageError(
                "rows are numbered in each of its programs", where="--explain", fix="name one program as the target"
            )
        case PipelineJob() if not partitioned:
            _show_pipeline(job, target, kernels=kernels, limit=limit, json=json)
        case ServingJob() if not partitioned:
            _show_serving(job, target, kernels=kernels, limit=limit, json=json)
        case _ if partitioned:
            typer.echo(one_program(job).local.text)
        case _:
            with patience(f"working on {target}"):
                program = one_program(job)
                run = program.run
            if explain is not None:
                _explain(run, explain, json=json)
                return
            attended = _attended(program, assumed="on" not in asked.written)
            _show_program(run, attended, kernels=kernels, limit=limit, json=json)


def _refuse_timing(asked: FlagValues) -> None:
    """Refuses what shapes kernels and their step, where neither is shown: of a pipeline its schedule is, which has times.

    Raises:
        UsageError: It is asked for.
    """
    from meshcast.base import UsageError

    for name, flag in asked.differing("lowering", "estimate", "network", "run"):
        if name not in ("fidelity", "clocks", "data"):
            raise UsageError(f"{flag} is about kernels", where=flag, fix="add --kernels")


def _show_program(run: Run, attended: dict[str, Any] | None, *, kernels: bool, limit: int, json: bool) -> None:
    from meshcast.cli.app import emit_json
    from meshcast.jobs import print_kernels, print_workload, shown_json

    if json:
        emit_json(shown_json(run, kernels=kernels) | ({} if attended is None else {"attention": attended}))
    elif kernels:
        print_kernels(run, limit=limit)
    else:
        print_workload(run.workload, limit=limit, besides=_in_words(attended))


def _attended(job: ProgramJob, *, assumed: bool) -> dict[str, Any] | None:
    """How a model attends, on which device, and whether anybody named that; None where there is nothing to choose."""
    found = job.asked.attending if job.asked is not None else None
    if found is None:
        return None
    return {
        "kind": found.attention, "default": found.default, "why": found.why or None,
        "device": job.device.name, "device_assumed": assumed,
    }  # fmt: skip


def _in_words(attended: dict[str, Any] | None) -> list[tuple[str, str]]:
    if attended is None:
        return []
    said = attended["kind"] + (f" ({attended['why']})" if attended["why"] else "")
    if attended["default"]:
        said += f", the default on {attended['device']}"
        said += ", which is assumed: --on names another device" if attended["device_assumed"] else ""
    return [("attention", said)]


def _show_trace(job: TraceJob, *, limit: int, analysis: bool, faster: list[str], json: bool) -> None:
    """A trace: the file that was named, or that of the first rank."""
    from meshcast.chakra import checked_trace, read_trace
    from meshcast.cli.app import emit_json
    from meshcast.jobs import trace_json, trace_sections
    from meshcast.results import print_sections

    path = job.source.path
    if analysis:
        from meshcast.traces import understanding_json, understanding_sections, understood

        with patience(f"replaying {path}"):
            found = understood(job.files, _times_as_fast(faster))
        if json:
            emit_json({"schema": "meshcast.trace-analysis/1", "name": job.files.name, **understanding_json(found)})
        else:
            print_sections(understanding_sections(found))
        return
    if not (path.is_file() and path.suffix in (".et", ".json") and not path.name.endswith(".manifest.json")):
        path = job.files.by_rank[0]
    trace = checked_trace(read_trace(path))
    if json:
        emit_json(trace_json(trace))
    else:
        print_sections(trace_sections(trace, limit=limit))


def _times_as_fast(texts: list[str]) -> dict[str, float]:
    """What `--faster matmul=2` says."""
    from meshcast.base import UsageError

    found = {}
    for text in texts:
        name, _, times = text.rpartition("=")
        try:
            found[name] = float(times)
        except ValueError:
            found[name] = 0.0
        if not name or not found[name] > 0:
            raise UsageError(f"{text!r} is not WHAT=TIMES", where="--faster", fix="as in --faster matmul=2, delay=inf")
    return found


def _show_pipeline(job: PipelineJob, target: str, *, kernels: bool, limit: int, json: bool) -> None:
    """A pipeline: its schedule as a chart, the kernels of each of its programs, or all of it as JSON."""
    from meshcast.cli.app import emit_json
    from meshcast.jobs import part_programs, pipeline_json, print_kernels
    from meshcast.results import chart_section, print_sections

    if json:
        with patience(f"working on {target}"):
            shown = pipeline_json(job, kernels=kernels)
        emit_json(shown)
    elif kernels:
        with patience(f"working on {target}"):
            programs = list(part_programs(job))
        for part, name, run in programs:
            print_kernels(run, limit=limit, name=f"{part}, {name}")
    else:
        with patience(f"working on {target}"):
            step = job.run
        print_sections([chart_section(step, limit=limit)])


def _show_serving(job: ServingJob, target: str, *, kernels: bool, limit: int, json: bool) -> None:
    """A model that answers requests: each of its passes, as one program is shown."""
    from meshcast.cli.app import emit_json
    from meshcast.jobs import print_kernels, print_workload, serving_json

    if json:
        with patience(f"working on {target}"):
            shown = serving_json(job, kernels=kernels)
        emit_json(shown)
        return
    with patience(f"working on {target}"):
        passes = [(name, each.described, program.run) for name, each, program in job.passes.named()]
    for name, described, run in passes:
        if kernels:
            print_kernels(run, limit=limit, name=f"{name} ({described})")
        else:
            print_workload(run.workload, limit=limit, title=f"What one device runs in {name} ({described})")


def _explain(run: Run, number: int, *, json: bool) -> None:
    from meshcast.cli.app import emit_json
    from meshcast.jobs import explain_kernel, explanation_json, print_explanation

    explained = explain_kernel(run, number)
    if json:
        emit_json(explanation_json(run, explained))
    else:
        print_explanation(run, explained)
