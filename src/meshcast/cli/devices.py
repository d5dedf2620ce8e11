"""`meshcast devices [NAME]`: the catalogue, or one entry with the source of every number."""

from __future__ import annotations

from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed, hardware_names


def devices_command(
    name: Annotated[
        str | None,
        typer.Argument(
            autocompletion=completed(hardware_names), metavar="[NAME]", help="A device, a cluster, or a TOML file."
        ),
    ] = None,
    json: flags.Json = False,
) -> None:
    """Lists devices and clusters; with NAME, every number of one with its source."""
    import meshcast.cli.catalogue_tables as tables
    from meshcast.cli.app import emit_json

    if name is None:
        if json:
            emit_json(tables.catalogue_json())
        else:
            tables.print_catalogue()
    elif json:
        emit_json(tables.entry_json(name))
    else:
        tables.print_entry(name)
