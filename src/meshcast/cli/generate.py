"""`meshcast generate --like llama3-70b --nodes 2000 --seed 7 -o OUT`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.patience import patience
from meshcast.cli.quantities import flag_quantity


def generate_command(
    like: Annotated[
        list[str] | None,
        typer.Option("--like", metavar="NAME", help="A model or family (decoder, gpt, vit, ...) that was learnt from."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="With -o: kernels and collectives of a rank; 1000 by default.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same gives the same graph.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="PREFIX", help="Where the traces go: PREFIX.RANK.et.")
    ] = None,
    suite: Annotated[
        Path | None,
        typer.Option(
            "--suite", metavar="FOLDER", help="A set of traces with a manifest, like each --like, or each family."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", help="With --suite: graphs like each; 4 by default.", min=1)
    ] = None,
    step_time: Annotated[
        str | None,
        typer.Option("--step-time", metavar="TIME", help="Sized so that a step takes this long on --on: 50ms."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="BYTES", help="Sized so that a rank holds this much: 40GB.")
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="NAME", help="With --step-time: where; dgx-h100 by default.")
    ] = None,
    json: flags.Json = False,
) -> None:
    """Writes Chakra traces of a synthetic workload, like those of a model, for all ranks."""
    from meshcast.base import Dimension, UsageError, ending_at_once, format_bytes, format_time
    from meshcast.cli.app import emit_json
    from meshcast.hardware import resolve
    from meshcast.traces import GraphConditions, grow_for, shipped_model, write_graph, write_suite

    if (out is None) == (suite is None):
        raise UsageError(
            "one of -o and --suite is needed", where="generate", fix="-o PREFIX for one graph, --suite FOLDER"
        )
    unheeded = ("--count", count, "-o") if suite is None else ("--nodes", nodes, "--suite")
    if unheeded[1] is not None:
        raise UsageError(
            f"is not heeded with {unheeded[2]}", where=unheeded[0],
            fix="--count is of a suite, whose graphs have sizes of their own; --nodes is of one graph with -o",
        )  # fmt: skip
    if on is not None and step_time is None:
        raise UsageError(
            "a device is given and no step", where="--on", fix="add --step-time, which is that of a device"
        )
    conditions = GraphConditions(
        step_s=None if step_time is None else flag_quantity(step_time, Dimension.TIME, "--step-time"),
        memory_bytes=None if memory is None else flag_quantity(memory, Dimension.BYTES, "--memory"),
        on=on or "dgx-h100",
    )
    resolve(conditions.on)  # refuses what there is not before anything is grown
    model = shipped_model()
    if suite is not None:
        with ending_at_once(as_json=json), patience("generating"):
            manifest = write_suite(model, suite, likes=like or [], seed=seed, count=count or 4, conditions=conditions)
        if json:
            emit_json(manifest)
            return
        covers = manifest["covers"]
        typer.echo(f"{len(manifest['graphs'])} graphs in {suite}: families {', '.join(covers['families'])}")
        typer.echo(f"kinds {', '.join(covers['kinds'])}; collectives {', '.join(covers['collectives'])}")
        return
    if out is None or not like or len(like) != 1:
        raise UsageError("a graph is like one model", where="--like", fix="give --like NAME once")
    with ending_at_once(as_json=json), patience("generating"):
        made = grow_for(model, like[0], nodes or 1000, seed, conditions)
        graph = made.graph
        files = write_graph(graph, out, memory=memory is not None)
    collectives = sum(node.is_collective for node in graph.nodes)
    if json:
        emit_json(
            {
                "schema": "meshcast.generated-trace/1", "like": like[0], "family": graph.family, "seed": seed,
                "nodes": len(graph.nodes), "layers": len(graph.layers()), "collectives": collectives, "ranks": graph.ranks,
                "step_s": made.step_s, "on": conditions.on if made.step_s else None, "memory_bytes": graph.memory_bytes,
                "files": [str(path) for path in files],
            }
        )  # fmt: skip
        return
    typer.echo(
        f"{len(graph.nodes):,} nodes in {len(graph.layers()):,} layers, {collectives:,} collectives, on {graph.ranks} ranks: "
        f"{out}.RANK.et"
    )
    typer.echo(f"like {graph.model}, of the family {graph.family}")
    if made.step_s is not None and conditions.step_s is not None:
        away = made.step_s / conditions.step_s - 1
        typer.echo(f"a step of {format_time(made.step_s)} on {conditions.on}, {away:+.1%} from what was asked for")
    if conditions.memory_bytes is not None:
        away = graph.memory_bytes / conditions.memory_bytes - 1
        typer.echo(f"{format_bytes(graph.memory_bytes)} held by a rank, {away:+.1%} from what was asked for")
