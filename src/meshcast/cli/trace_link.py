"""`meshcast trace link --host ET.json --device KINETO.json -o FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.patience import patience


def trace_link_command(
    device: Annotated[
        list[Path],
        typer.Option(
            "--device", metavar="KINETO", help="torch.profiler's JSON of a rank, or a folder of all; may be repeated."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FOLDER", help="Where the Chakra traces go.")],
    host: Annotated[
        list[Path] | None,
        typer.Option(
            "--host", metavar="ET", help="PyTorch's execution trace of a rank, or a folder; in the order of --device."
        ),
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="One of the profiler's steps (ProfilerStep#N) alone.")
    ] = None,
    form: Annotated[str, typer.Option("--form", help="protobuf (job.RANK.et) or json (job.RANK.json).")] = "protobuf",
    json: flags.Json = False,
) -> None:
    """Links execution traces and profiles of a real job's ranks into Chakra traces, which predict replays."""
    from meshcast.base import ending_at_once, format_time
    from meshcast.cli.app import emit_json
    from meshcast.traces import link_traces

    with ending_at_once(as_json=json), patience("linking"):
        made = link_traces(host or [], device, out, step=step, form=form)
    if json:
        emit_json({"schema": "meshcast.linked/1", "files": [str(path) for path in made.files], **made.summary})
        return
    for each in made.summary["ranks"]:
        linked = (
            f"{each['linked_operators']:,} of {each['operators']:,} operators" if each["operators"] else "no operators"
        )
        typer.echo(
            f"rank {each['rank']}: {each['nodes']:,} nodes, {format_time(each['span_s'])}; {linked} and "
            f"{each['linked_device_work']:,} of {each['device_work']:,} pieces of device work linked"
        )
    for note in made.summary["notes"]:
        typer.echo(f"note: {note}")
    typer.echo(f"{len(made.files)} files in {out}, a step of {format_time(made.summary['measured_span_s'])}")
