"""`meshcast show TARGET`: the workload, or its kernels after lowering."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.patience import patience


@runs(
    "program",
    "lowering",
    "estimate",
    without={
        "devices": "what one device sees is shown, of the program's own mesh",
        "levers": "nothing is predicted",
    },
)
def show_command(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A file, module:function, or a model of the zoo.")],
    kernels: Annotated[bool, typer.Option("--kernels", help="Kernels after lowering, with their times.")] = False,
    partitioned: Annotated[
        bool, typer.Option("--partitioned", help="The program of one device, as MLIR text.")
    ] = False,
    explain: Annotated[
        int | None, typer.Option("--explain", help="With --kernels: the formula and numbers behind row N.", metavar="N")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Rows to print.", min=1)] = 40,
    *,
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Shows ops, FLOPs, bytes, loops and collectives of TARGET, as one device sees it."""
    from meshcast.base import UsageError
    from meshcast.cli.app import emit_json
    from meshcast.jobs import is_pipeline, local_program, names_traces, pipeline_run, prepare, resolved

    for name, flag in asked.differing("lowering", "estimate"):
        if name not in ("fidelity", "clocks") and not kernels:
            raise UsageError(f"{flag} is about kernels", where=flag, fix="add --kernels")
    if explain is not None and not kernels:
        raise UsageError("--explain is about a row of the kernels' table", where="--explain", fix="add --kernels")
    if names_traces(target):
        if kernels or partitioned:
            raise UsageError(
                "of a trace its nodes are shown", where=target, fix="leave out --kernels and --partitioned"
            )
        _show_trace(target, limit=limit, json=json)
        return
    # Without --kernels it is the program's own ops that are shown, not what a compiler made of them.
    options = asked.options() if kernels else asked.options(lowering="modelled")
    attended = _attended(target, options, assumed="on" not in asked.written)
    if partitioned:
        if options.program.trip_counts or kernels or json:
            raise UsageError(
                "--partitioned prints the program alone", fix="leave out --trip-count, --kernels and --json"
            )
        typer.echo(local_program(target, options).text)
        return
    if is_pipeline(resolved(target, options)[0]):
        if kernels or json:
            raise UsageError("of a pipeline its schedule is shown", where=target, fix="leave out --kernels and --json")
        from meshcast.results import chart_section, print_sections

        with patience(f"working on {target}"):
            step = pipeline_run(target, options)
        print_sections([chart_section(step, limit=limit)])
        return
    with patience(f"working on {target}"):
        run = prepare(target, options)
    if explain is not None:
        _explain(run, explain, json=json)
        return
    if json:
        emit_json(_json(run, kernels=kernels) | ({} if attended is None else {"attention": attended}))
        return
    from meshcast.jobs import print_kernels, print_workload

    if kernels:
        print_kernels(run, limit=limit)
    else:
        print_workload(run.workload, limit=limit, besides=_in_words(attended))


def _attended(target: str, options: Any, *, assumed: bool) -> dict[str, Any] | None:
    """How a model attends, on which device, and whether anybody named that; None where there is nothing to choose."""
    from meshcast.hardware import resolve
    from meshcast.jobs import attention_of, serves
    from meshcast.zoo import model_named

    builder, device = model_named(target), resolve(options.on).device
    found = None if builder is None or serves(target, options) else attention_of(builder, options, device)
    if found is None:
        return None
    return {
        "kind": found.attention, "default": found.default, "why": found.why or None,
        "device": device.name, "device_assumed": assumed,
    }  # fmt: skip


def _in_words(attended: dict[str, Any] | None) -> list[tuple[str, str]]:
    if attended is None:
        return []
    said = attended["kind"] + (f" ({attended['why']})" if attended["why"] else "")
    if attended["default"]:
        said += f", the default on {attended['device']}"
        said += ", which is assumed: --on names another device" if attended["device_assumed"] else ""
    return [("attention", said)]


def _show_trace(target: str, *, limit: int, json: bool) -> None:
    """A trace: the file that was named, or that of the first rank."""
    from pathlib import Path

    from meshcast.chakra import checked_trace, read_trace
    from meshcast.cli.app import emit_json
    from meshcast.jobs import find_traces, trace_json, trace_sections
    from meshcast.results import print_sections

    path = Path(target)
    if not (path.is_file() and path.suffix == ".et"):
        path = find_traces(target).by_rank[0]
    trace = checked_trace(read_trace(path))
    if json:
        emit_json(trace_json(trace))
    else:
        print_sections(trace_sections(trace, limit=limit))


def _explain(run: Any, number: int, *, json: bool) -> None:
    from meshcast.cli.app import emit_json
    from meshcast.jobs import explain_kernel, explanation_json, print_explanation

    explained = explain_kernel(run, number)
    if json:
        emit_json(explanation_json(run, explained))
    else:
        print_explanation(run, explained)


def _json(run: Any, *, kernels: bool) -> dict[str, Any]:
    from meshcast.jobs import kernels_json, workload_json

    return kernels_json(run) if kernels else workload_json(run.workload)
