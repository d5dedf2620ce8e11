"""`meshcast compare MODEL --tables TABLES --on X --measured FOLDER`: a recommender's step that torchrec ran."""

from __future__ import annotations

from pathlib import Path

import typer

from meshcast.cli.patience import patience

DOT_PRODUCTS = ("dlrm-tiny", "dlrm-small", "dlrm-criteo")


def show_measured_tables(model: str, source: str, folder: str, on: str, host: str, *, json: bool) -> None:
    """Prints a recorded step beside the predicted one: seconds, kernels by kind, and the plan that the traces tell."""
    from meshcast.base import UsageError
    from meshcast.cli.app import emit_json
    from meshcast.cli.with_tables import recommender_called
    from meshcast.hardware import resolve
    from meshcast.jobs import measured_trainer, read_tables
    from meshcast.results import Section, columns, print_sections

    if recommender_called(model) not in DOT_PRODUCTS:
        raise UsageError(
            f"{model} is no DLRM, whose step torchrec's calls are known of", where="TARGET", fix="give dlrm-criteo"
        )
    with patience(f"reading {folder}"):
        found = measured_trainer(
            Path(folder), read_tables(source), resolve(on), host="slow" if host in ("auto", "on", "off") else host
        )
    if json:
        emit_json(found.to_json())
        return
    held = [(f"rank {rank}", ", ".join(names)) for rank, names in enumerate(found.recorded.held)]
    everywhere = [each["table"] for each in found.plan if each["sharding"] == "data_parallel"]
    held += [("all ranks", ", ".join(everywhere))] if everywhere else []
    print_sections([Section(title="tables, by the traces", columns=columns("", "~"), rows=held)])
    for line in found.lines():
        typer.echo(line)
