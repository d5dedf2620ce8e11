"""`meshcast collective KIND --bytes N --on X --devices N`: one collective by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.patience import patience

if TYPE_CHECKING:
    from meshcast.jobs import CollectiveAnswer


@runs(
    "network",
    besides=("mesh",),
    instead={"on": "dgx-h100"},  # a device alone has no network
    without={
        "levers": "no step is predicted that a change could help",
        "what_if": "no step is predicted that a change could help",
        "--slow": "one collective has no arithmetic that a slow device would be late with",
    },
)
def collective_command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="all_reduce, all_gather, reduce_scatter, all_to_all, collective_permute, send_recv, broadcast or reduce.",
        ),
    ],
    size: Annotated[
        str,
        typer.Option(
            "--bytes",
            metavar="N",
            help="Size as nccl-tests has it (the whole buffer): 1048576, 1MiB, or a sweep by doubling, 1KiB..8GiB.",
        ),
    ],
    axes: Annotated[
        str | None, typer.Option("--axes", help="Mesh axes of the groups, e.g. data or data*model; without it all.")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algorithm", help="Instead of the one the library would choose, e.g. ring.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", help="Instead of the one the library would choose, e.g. LL128.")
    ] = None,
    together: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="KIND:BYTES[:AXES]",
            help="Another collective of the job that starts at the same time; may be repeated.",
        ),
    ] = None,
    export_astra: Annotated[
        Path | None,
        typer.Option(
            "--export-astra", metavar="DIR", help="Also write ASTRA-sim's network, system, memory and trace files."
        ),
    ] = None,
    *,
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Time, algbw and busbw (as nccl-tests defines them) of one collective, the algorithm chosen and why."""
    from meshcast.base import Mesh
    from meshcast.cli.app import emit_json
    from meshcast.jobs import CollectiveQuestion, answer_collective
    from meshcast.network import parse_sizes

    options = asked.options()
    on, mesh = str(options.on), options.program.mesh
    question = CollectiveQuestion(
        kind=kind,
        sizes=parse_sizes(size, "--bytes"),
        on=on,
        devices=options.devices,
        mesh=Mesh.of(mesh) if mesh is not None else None,
        axes=tuple(axes.replace("*", ",").split(",")) if axes is not None else (),
        algorithm=algorithm,
        protocol=protocol,
        arrangement=options.network.arrangement,
        together=tuple(together or ()),
    )
    with patience(f"timing {kind}"):
        answers = answer_collective(question)
    if export_astra is not None:
        _export(export_astra, answers, on)
    if json:
        for one in answers:
            emit_json(one.to_json())
    elif len(answers) == 1:
        _print_one(answers[0])
    else:
        _print_sweep(answers)


def _export(folder: Path, answers: list[CollectiveAnswer], on: str) -> None:
    from meshcast.base import UsageError
    from meshcast.hardware import resolve
    from meshcast.network import export_collective

    if len(answers) != 1:
        raise UsageError(
            f"{len(answers)} sizes cannot be exported as one", where="--export-astra", fix="give one --bytes"
        )
    (one,) = answers
    written = export_collective(folder, one.collective, resolve(on), one.devices)
    typer.echo("ASTRA-sim takes " + " ".join(f"--{flag}={path}" for flag, path in written.items()), err=True)


def _print_one(answer: CollectiveAnswer) -> None:
    from rich.console import Console
    from rich.table import Table

    from meshcast.base import format_bytes, format_rate, format_time

    console = Console(markup=False, emoji=False, highlight=False)
    console.print(answer.title, style="bold")
    rows = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_row("time", f"{format_time(answer.seconds)}  ({_parts(answer)})")
    rows.add_row("algbw", format_rate(answer.algbw))
    rows.add_row("busbw", format_rate(answer.busbw))
    rows.add_row("algorithm", " ".join(filter(None, (answer.plan.algorithm, answer.plan.protocol))))
    if answer.plan.why:
        rows.add_row("why", answer.plan.why)
    if answer.plan.others:
        rows.add_row("instead of", ", ".join(f"{name} {format_time(s)}" for name, s in answer.plan.others))
    for other in answer.together:
        rows.add_row("with", f"{other.title}: {format_time(other.seconds)}, alone {format_time(other.alone_s)}")
    console.print(rows)
    if answer.plan.stages:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("stage")
        for heading in ("parts", "steps", "a step", "sends", "at", "time"):
            table.add_column(heading, justify="right", no_wrap=True)
        for stage in answer.plan.stages:
            table.add_row(
                f"{stage.level.name} {stage.algorithm}", f"{stage.parts:,}", f"{stage.steps:,}",
                format_time(stage.alpha_s), format_bytes(stage.step_bytes), format_rate(stage.rate),
                format_time(stage.latency_s + stage.bandwidth_s),
            )  # fmt: skip
        console.print(table)
    for use in answer.links:
        console.print(f"{use.level}: {use.mean:.0%} of what its links could carry, the busiest {use.most:.0%}")
    for note in answer.notes:
        console.print(f"note: {note}")


def _parts(answer: CollectiveAnswer) -> str:
    from meshcast.base import format_time

    plan = answer.plan
    said = f"start {format_time(plan.start_s)}, steps {format_time(plan.latency_s - plan.start_s)}, "
    said += f"wire {format_time(plan.bandwidth_s)}"
    return said if answer.seconds <= answer.alone_s * (1 + 1e-9) else said + f"; alone {format_time(answer.alone_s)}"


def _print_sweep(answers: list[CollectiveAnswer]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False, highlight=False)
    console.print(answers[0].titled(_span(answers)), style="bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("bytes", "time us", "algbw GB/s", "busbw GB/s"):
        table.add_column(heading, justify="right")
    table.add_column("algorithm")
    for one in answers:
        chosen = " ".join(filter(None, (one.plan.algorithm, one.plan.protocol)))
        table.add_row(
            f"{one.size:,}", f"{one.seconds * 1e6:,.2f}", f"{one.algbw / 1e9:,.2f}", f"{one.busbw / 1e9:,.2f}", chosen
        )
    console.print(table)
    for note in dict.fromkeys(note for one in answers for note in one.notes):
        of = [one for one in answers if note in one.notes]  # what one algorithm leaves unused, another may use
        console.print(f"note: {note}" if len(of) == len(answers) else f"note, {_span(of)}: {note}")


def _span(answers: list[CollectiveAnswer]) -> str:
    """The sizes of some answers of a sweep."""
    from meshcast.base import format_bytes

    least, most = (format_bytes(find(one.size for one in answers)) for find in (min, max))
    return least if least == most else f"{least} to {most}"
