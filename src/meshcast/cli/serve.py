"""`meshcast serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve_command(
    host: Annotated[str, typer.Option("--host", help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; 0 takes a free one.", min=0, max=65535)] = 8765,
    runs: Annotated[
        Path, typer.Option("--runs", metavar="DIR", help="Folder with run folders; searches leave theirs there.")
    ] = Path(),
    workers: Annotated[
        int, typer.Option("--workers", help="Processes that predict, and as many of each search.", min=1, max=64)
    ] = 2,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name that browsers may call it by; may be repeated."),
    ] = None,
) -> None:
    """Serves a page on localhost: predictions, comparisons and searches by clicking.

    It listens on loopback alone unless --host says otherwise, and asks nobody who they are.
    """
    from meshcast.serve import ServeOptions, serve_page

    serve_page(ServeOptions(host=host, port=port, runs=runs, workers=workers, allowed_hosts=tuple(allow_host or ())))
