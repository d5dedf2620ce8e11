"""`meshcast tables ...`: embedding tables, what their look-ups take, and how to share them out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.patience import patience

if TYPE_CHECKING:
    from meshcast.jobs import TablesAnswer

app = typer.Typer(
    help="Embedding tables of recommenders: what look-ups and updates take, and the fastest way to share them out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Tables = Annotated[
    str,
    typer.Argument(
        metavar="TABLES", help="A CSV, JSON or TOML file of tables, or a list that is shipped (meshcast tables lists)."
    ),
]
Batch = Annotated[int, typer.Option("--batch", help="Samples of a step, over all devices.", min=1)]


@app.command("lists")
def lists_command(json: flags.Json = False) -> None:
    """Lists the tables that are shipped, with how many there are and what they take."""
    from meshcast.base import format_bytes
    from meshcast.cli.app import emit_json
    from meshcast.jobs import list_names, read_tables

    for name in list_names():
        tables = read_tables(name)
        rows, size = sum(each.rows for each in tables), sum(each.bytes for each in tables)
        if json:
            emit_json({"name": name, "tables": len(tables), "rows": rows, "bytes": size})
        else:
            typer.echo(f"{name:14} {len(tables)} tables, {rows:,} rows, {format_bytes(size)}")


@app.command("show")
def show_command(source: Tables, on: flags.On = "h200", batch: Batch = 65536, json: flags.Json = False) -> None:
    """Shows every table: rows that a batch touches, what misses L2, the hottest row, and seconds of look-ups and updates."""
    from meshcast.cli.app import emit_json
    from meshcast.jobs import read_tables, table_rows

    rows = table_rows(read_tables(source), on, batch)
    if json:
        for row in rows:
            emit_json(row)
        return
    from meshcast.base import format_bytes, format_time
    from meshcast.results import Section, columns, percent, print_sections

    heads = columns(
        "table",
        ">rows",
        ">dim",
        ">look-ups",
        ">different",
        ">missed",
        ">hottest",
        ">hits",
        ">size",
        ">forward",
        ">update",
    )
    kept = any(row["hits"] is not None for row in rows)  # by a cache of rows that lie in host memory
    extras = {"dim", "missed", "hottest", "size"}  # which a narrow terminal does without
    lines = []
    for row in rows:
        counts = [f"{round(row[name]):,}" for name in ("look_ups", "different", "missed", "hottest")]
        lines.append(
            (
                row["table"], f"{row['rows']:,}", str(row["dim"]), *counts,
                *(["" if row["hits"] is None else percent(row["hits"])] if kept else []), format_bytes(row["bytes"]),
                format_time(row["forward_s"]), format_time(row["backward_s"]),
            )
        )  # fmt: skip
    shown = tuple(replace(each, extra=each.title in extras) for each in heads if kept or each.title != "hits")
    print_sections([Section(columns=shown, rows=lines)])


@app.command("plan")
@runs(
    "network",
    instead={"on": "dgx-h100"},
    without={
        "levers": "the search itself is what would help",
        "what_if": "plans are compared on hardware as it is",
        "placement": "the plan says where tables are",
        "fabric": "rows are exchanged over the levels of a cluster",
        "beside": "the job has its devices to itself",
    },
)
def plan_command(
    source: Tables,
    asked: FlagValues,
    batch: Batch = 65536,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="dlrm|dcnv2|two-tower|hstu|MODEL|none",
            help="Dense layers beside the tables; dlrm and dcnv2 are of MLPerf's sizes.",
        ),
    ] = "none",
    wire: Annotated[
        str, typer.Option("--wire", metavar="f32|bf16|f16", help="Precision of pooled rows that are sent.")
    ] = "f32",
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="Whether indices of the next batch travel meanwhile.")
    ] = True,
    stack: Annotated[
        str, typer.Option("--dense-stack", help="How the dense layers are run (meshcast stacks).")
    ] = "pytorch-eager",
    precision: Annotated[
        str,
        typer.Option(
            "--precision",
            metavar="fp32|tf32|bf16|fp16",
            help="Of the dense layers: fp32 as PyTorch's default has it, TF32, or autocast.",
        ),
    ] = "float32",
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="slow|fast|TIME|off",
            help="How long the host takes to issue the step: slow (a virtual machine), fast, the time of an addition, or off.",
        ),
    ] = "slow",
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="PLAN.json", help="A plan that somebody else made, e.g. torchrec's, timed as well."
        ),
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option("--given", metavar="PLAN.json", help="Times this plan, and searches for none."),
    ] = None,
    json: flags.Json = False,
) -> None:
    """Finds the fastest sharding of TABLES: its step, what bounds it, and the greedy plans beside it.

    Devices of another speed or kind (--slow) get tables accordingly. Exits with 3 where no plan fits the devices' memory.
    """
    from meshcast.cli.app import emit_json

    with patience(f"sharing out tables of {source}"):
        from meshcast.cli.with_tables import check_heeded
        from meshcast.jobs import TablesQuestion, layers_for, plan_tables, read_tables

        check_heeded(options := asked.options())
        tables = read_tables(source)
        layers = None if model == "none" else layers_for(model, tables)
        question = TablesQuestion(
            tables=tables, on=str(options.on), devices=options.devices, batch=batch, layers=layers, wire=wire,
            pipelined=pipeline, stack=stack, network=options.network.model, against=against, dtype=precision, host=host,
            given=given, conditions=options.network.conditions,
        )  # fmt: skip
        answer = plan_tables(question)
    if json:
        emit_json(answer.to_json())
    else:
        print_plan(answer)


def print_plan(answer: TablesAnswer) -> None:
    """The step, what bounds it, and where every table is."""
    from meshcast.base import format_bytes, format_time
    from meshcast.results import Section, columns, print_sections

    ranks, parts = answer.problem.ranks, answer.step.parts_s
    tables = f"{len(answer.problem.tables)} tables on {ranks.devices} devices of {answer.question.on}"
    title = f"{tables}, batch {ranks.global_batch:,}"
    told: list[tuple[str, ...]] = []
    told.append(
        ("step", f"{format_time(answer.step.step_s)}, {ranks.global_batch / answer.step.step_s:,.0f} samples/s")
    )
    told.append(("bound by", answer.bound))
    told.append(("look-ups, updates", f"{format_time(parts['look_ups'])}, {format_time(parts['updates'])}"))
    told.append(("pooled rows", f"{format_time(parts['pooled'])}, exposed {format_time(parts['exposed_pooled'])}"))
    told.append(("indices", f"{format_time(parts['indices'])}, exposed {format_time(parts['exposed_indices'])}"))
    told.append(("dense layers", format_time(parts["dense"])))
    if parts["waiting"] > 0:
        told.append(("waiting", f"{format_time(parts['waiting'])} for ranks that have more"))
    if answer.problem.model.dense.host_s:
        told.append(("host", format_time(answer.problem.model.dense.host_s)))
    told.append(
        ("dense all-reduce", f"{format_time(parts['reduced'])}, exposed {format_time(parts['exposed_reduced'])}")
    )
    told.append(
        (
            "memory",
            f"{format_bytes(answer.memory_bytes[0])} on the fullest, {format_bytes(answer.memory_bytes[1])} on average",
        )
    )
    instead = ", ".join(f"{name} {format_time(s) if s else 'does not fit'}" for name, s in answer.baselines.items())
    if instead:
        told.append(("instead of", instead))
    if answer.against is not None:
        other = answer.against
        told.append(
            (
                "against",
                f"{format_time(other.step_s)}, {other.step_s / answer.step.step_s - 1:+.1%}, bound by {other.bound}",
            )
        )
    lines = []
    for each, placed in zip(answer.problem.tables, answer.plan, strict=True):
        where = "nodes" if placed.sharding.way in ("table-row", "grid") else "ranks"
        places = f"{where} {' '.join(map(str, placed.places))}" if placed.places else "all ranks"
        lines.append((each.name, f"{each.rows:,}", str(each.dim), str(placed.sharding), places))
    shown = columns("table", ">rows", ">dim", "sharding", "~on")
    print_sections([Section(title=title, rows=told, emphasis=True), Section(columns=shown, rows=lines)])
