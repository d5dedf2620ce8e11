"""`meshcast validate generated`: whether grown graphs stand for real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.patience import patience


def generated_command(
    graphs: Annotated[
        int, typer.Option("--graphs", help="How many are grown, and how many each baseline makes.", min=4)
    ] = 120,
    seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.", min=0)] = 0,
    on: flags.On = "dgx-h100",
    tpu_tile: Annotated[
        Path | None,
        typer.Option(
            "--tpu-tile", metavar="FOLDER", help="On LayerDAG's graphs (val.pth, test.pth) instead of our own."
        ),
    ] = None,
    recordings: Annotated[
        Path | None,
        typer.Option(
            "--recordings", metavar="FOLDER", help="Execution traces of facebookresearch/param as real graphs, too."
        ),
    ] = None,
    json: flags.Json = False,
) -> None:
    """Grows graphs, and says whether they are valid, how far they are from real ones set apart, and what can be learnt from them.

    Beside the model stand a copy with changes and a graph of chance. The last test trains a surrogate of step times on each, and
    tests it on real graphs that nothing was learnt from.
    """
    from meshcast.base import UsageError
    from meshcast.cli.app import emit_json
    from meshcast.results import Section, columns, print_sections
    from meshcast.traces import evaluate, evaluate_tiles, recorded_corpus, shipped_corpus, shipped_model

    recorded = [] if recordings is None else list(recorded_corpus(recordings))
    if recordings is not None and not recorded:
        raise UsageError(
            f"{recordings} has none of the recordings", where="--recordings",
            fix="give et_replay/tests/inputs of facebookresearch/param, its archives unpacked",
        )  # fmt: skip
    with patience("validating"):
        if tpu_tile is not None:
            found = evaluate_tiles(tpu_tile, graphs=graphs, seed=seed)
        else:
            found = evaluate(shipped_model(), [*shipped_corpus(), *recorded], graphs=graphs, seed=seed, on=on)
    if json:
        emit_json(found.to_json())
        return
    typer.echo(
        f"{found.valid['generated']} of {found.graphs} graphs are valid; {found.held_out} real graphs are set apart"
    )
    measures = list(next(iter(found.distances.values())))
    rows = [
        [name, f"{found.valid[name]:,}", *(f"{row[each]:.3f}" for each in measures)]
        for name, row in found.distances.items()
    ]
    learnt = [
        [each.trained_on, str(each.graphs), f"{each.spearman:.3f}", f"{each.pearson:.3f}", f"{each.geomean_error:.1%}"]
        for each in found.surrogates.values()
    ]
    print_sections(
        [
            Section(
                title="Distance from the graphs set apart",
                columns=columns("made by", ">valid", *(f">{each}" for each in measures)),
                rows=tuple(map(tuple, rows)),
            ),
            Section(
                title="Surrogates, on the graphs set apart",
                columns=columns("trained on", ">graphs", ">Spearman", ">Pearson", ">error"),
                rows=tuple(map(tuple, learnt)),
                note="reached"
                if found.reached
                else "not reached: 0.9 of the rank correlation, 1.3 times the error of real",
            ),
        ]
    )
