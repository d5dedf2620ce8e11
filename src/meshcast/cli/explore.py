"""`meshcast explore SPACE.toml`."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.explored import tell_exploration
from meshcast.cli.patience import patience


def explore_command(
    space: Annotated[Path, typer.Argument(metavar="SPACE.toml", help="What is searched over (docs/exploring.md).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Run folder; by default explore-SPACE in this folder."),
    ] = None,
    no_folder: Annotated[bool, typer.Option("--no-folder", help="Print only: keep no points.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the points of the run folder.")] = False,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            "--merge", metavar="DIR", help="A run folder of the same space, of another machine; may be repeated."
        ),
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", help="best, exhaustive, tpe or nsga2, in place of the file's.")
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Try each number of the best point's hardware a tenth better.")
    ] = False,
    engine: Annotated[str, typer.Option("--engine", help="processes, in-process or ray.")] = "processes",
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; one for each core.", min=1)] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT|auto", help="A Ray cluster to join; else one is started."),
    ] = None,
    points: Annotated[
        bool, typer.Option("--points", help="With --json, a line for each point before the summary.")
    ] = False,
    plot: flags.PlotFlag = None,
    json: flags.Json = False,
) -> None:
    """Searches a space of models, plans, hardware and sizes: the best points, the Pareto front, and what limits them.

    Points are kept in the run folder as they are finished: Ctrl-C keeps them, and --resume goes on. The exit code is 3
    where no point runs and keeps to the limits.
    """
    from meshcast.base import UsageError, file_name
    from meshcast.explore import explore_into, merged, read_space

    if no_folder and (out is not None or resume or merge):
        raise UsageError("--no-folder keeps nothing", where="--no-folder", fix="leave it out")
    if plot is not None:
        from meshcast.report import check_plot

        check_plot(plot)
    read = read_space(space)
    folder = None if no_folder else out or Path(f"explore-{file_name(space.stem)}")
    if merge and folder is not None:
        merged(merge, folder, read.space)
    chosen = {"search": search} if search is not None else {}
    listed = json and points
    with contextlib.ExitStack() as stack:
        if folder is None and listed:  # there may be more points than anybody holds
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="meshcast-points-")))
        with patience(f"searching {space}"):
            found, written = explore_into(
                folder, read, title=f"points of {space.name}", resume=resume or bool(merge),
                command=["meshcast", *sys.argv[1:]],
                sensitivity=sensitivity, engine=engine, workers=workers, address=address, **chosen,
            )  # fmt: skip
        if written and not no_folder:
            print(f"meshcast: wrote {folder}: {', '.join(written)}", file=sys.stderr)
        if found.tally.space == 1:
            said = "the space has one point: a list of values in place of one, or [plan] for plans, makes more"
            print(f"meshcast: {said} (docs/exploring.md)", file=sys.stderr)
        if plot is not None and found.best:
            from meshcast.report import save_figure, search_figure

            save_figure(search_figure(found, title=f"points of {space.name}"), plot)
        tell_exploration(found, f"best points of {space}", json=json, folder=folder if listed else None)
