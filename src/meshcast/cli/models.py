"""`meshcast models`: the zoo, and one model's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed, model_names

if TYPE_CHECKING:
    from meshcast.jobs import Recommender
    from meshcast.zoo import Builder

Name = Annotated[
    str | None,
    typer.Argument(
        autocompletion=completed(model_names),
        help="A model, or a Hugging Face config.json or its folder: shows its settings.",
        metavar="[MODEL]",
    ),
]


# Columns of a terminal from which on a table has modes, and what each model is.
_WITH_MODES, _WITH_SUMMARIES = 90, 56


def models_command(name: Name = None, json: flags.Json = False) -> None:
    """Lists the reference models that can be targets, or the settings of one."""
    from meshcast.cli.app import emit_json
    from meshcast.cli.with_tables import recommender_called

    name = None if name is None else recommender_called(name)
    if name is not None and _with_tables(name):
        _show_recommender(name, json=json)
        return
    if name is not None:
        found = _builder(name)
        if json:
            emit_json(_described(found))
        else:
            _print_settings(found)
        return
    from meshcast import zoo

    counts = {model: builder.parameters() for model, builder in zoo.models().items()}
    if json:
        listed = [
            {"name": b.name, "summary": b.summary, "model": model, "mode": b.mode, "parameters": counts[model]}
            for model, builder in zoo.models().items()
            for b in zoo.programs(builder)
        ]
        listed += [
            {
                "name": each.name,
                "summary": each.summary,
                "model": each.name,
                "mode": "train",
                "parameters": each.parameters,
            }
            for each in _recommenders()
        ]
        emit_json({"schema": "meshcast.models/1", "models": listed})
        return
    _print_models(zoo.models(), counts)


def _recommenders() -> list[Recommender]:
    """Those that are no JAX program: tables with the dense layers of eager PyTorch."""
    from meshcast.jobs import SHIPPED
    from meshcast.zoo import models

    known = models()
    return [each for name, each in SHIPPED.items() if name not in known]


def _with_tables(name: str) -> bool:
    return name in {each.name for each in _recommenders()}


def _show_recommender(name: str, *, json: bool) -> None:
    """Its settings, which `predict` takes."""
    from meshcast.cli.app import emit_json
    from meshcast.cli.with_tables import settings_of
    from meshcast.jobs import SHIPPED

    found = SHIPPED[name]
    note = (
        f"its tables are the list {found.tables}; --tables gives others, and `meshcast tables plan` has more to ask for"
    )
    if json:
        told = {
            "name": name,
            "summary": found.summary,
            "parameters": found.parameters,
            "mode": "train",
            "modes": ["train"],
        }
        emit_json({"schema": "meshcast.model/1", **told, "settings": settings_of(name), "notes": [note]})
        return
    typer.echo(f"{name}: {found.summary}, {found.parameters:,} parameters")
    for setting, value in settings_of(name).items():
        typer.echo(f"  {setting:10} {value}")
    typer.echo(f"modes: train\nnote: {note}")


def _builder(name: str) -> Builder:
    """The model or program of that name, or the model of a configuration file."""
    from meshcast.base import InputError, UsageError
    from meshcast.zoo import hint, model_named

    if (found := model_named(name)) is not None:
        return found
    if Path(name).is_dir():
        raise InputError("is a folder, and has no config.json", where=name, fix="name a model's folder or file")
    raise UsageError(f"no model {name!r} in the zoo", where="MODEL", fix=hint(name))


def _described(builder: Builder) -> dict[str, Any]:
    return {
        "schema": "meshcast.model/1",
        "name": builder.name,
        "summary": builder.summary,
        "parameters": builder.parameters(),
        "mode": builder.mode,
        "modes": list(builder.all_modes),
        "settings": builder.overrides(),
        "notes": list(builder.notes),
    }


def _print_models(builders: dict[str, Builder], counts: dict[str, int]) -> None:
    from rich.console import Console
    from rich.table import Table

    rows = [
        (name, f"{counts[name]:,}", builder.summary, " ".join(builder.all_modes)) for name, builder in builders.items()
    ]
    rows += [(each.name, f"{each.parameters:,}", each.summary, "train") for each in _recommenders()]
    console = Console()
    # Names are what one types: they stay whole. `models NAME` has the modes, and --json all of it.
    heads = ["model", "parameters", "what it is", "modes"][: 4 if console.width >= _WITH_MODES else 3]
    heads = heads if console.width >= _WITH_SUMMARIES else heads[:2]
    table = Table(*heads, box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for column in table.columns[:2]:
        column.no_wrap = True
    for row in rows:
        table.add_row(*row[: len(heads)])
    console.print(table)
    console.print(
        "A model's name is its training step, NAME-forward and so on its other modes, --set mode=serve whole requests; "
        "`meshcast models NAME` shows what --set may change."
    )


def _print_settings(builder: Builder) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{builder.name}: {builder.summary}, {builder.parameters():,} parameters")
    table = Table("setting", "value", box=None, pad_edge=False)
    for name, value in builder.overrides().items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(name, text.lower() if isinstance(value, bool) else "by the model" if value is None else text)
    console.print(table)
    console.print("modes: " + ", ".join(builder.all_modes))
    for note in builder.notes:
        console.print(f"note: {note}")
