"""`meshcast models`: the zoo."""

from __future__ import annotations

from meshcast.cli import arguments as flags


def models_command(json: flags.Json = False) -> None:
    """Lists the reference models that can be targets."""
    from meshcast import models
    from meshcast.cli.app import emit_json

    zoo = models.zoo()
    if json:
        emit_json(
            {"schema": "meshcast.models/1", "models": [{"name": b.name, "summary": b.summary} for b in zoo.values()]}
        )
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("model", "what it is", box=None, pad_edge=False)
    for builder in zoo.values():
        table.add_row(builder.name, builder.summary)
    Console().print(table)
