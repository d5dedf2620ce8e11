"""Flags that several verbs share one by one: those of single options, as they are declared, and of no option."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli.completion import completed, model_names
from meshcast.cli.flags import flag

Targets = Annotated[
    list[str],
    typer.Argument(
        autocompletion=completed(model_names),
        metavar="TARGET...",
        help="Files, module:function (which is run), or models of the zoo.",
    ),
]
On = Annotated[str, flag("on")]
Devices = Annotated[int | None, flag("devices")]
Fidelity = Annotated[str, flag("fidelity")]
ProfileFlag = Annotated[str | None, flag("profile")]
Network = Annotated[str, flag("network")]
LoweringFlag = Annotated[str, flag("lowering")]
Indices = Annotated[str, flag("indices")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of tables for people.")]
# Of what is judged row by row (`meshcast validate`).
FirstRows = Annotated[int | None, typer.Option("--limit", help="Only the first rows.", min=1)]
Jobs = Annotated[int, typer.Option("--jobs", help="Processes to predict in.", min=1)]
MarkdownPage = Annotated[Path | None, typer.Option("--markdown", help="Also write the page to this file.")]
PlotFlag = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.svg|FILE.png", help="A picture of the answer as well (extra plots)."),
]
MeasuredFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--measured",
        metavar="TRACE",
        help="A profile of a real run: JAX's .xplane.pb or its folder, torch.profiler's .json[.gz] or a folder "
        "with one a rank, or the CSV of nsys stats; may be repeated for several ranks.",
    ),
]
StepsFlag = Annotated[
    int | None, typer.Option("--steps", help="Steps in each TRACE, where they cannot be found in it.")
]
ModuleFlag = Annotated[
    str | None,
    typer.Option("--module", metavar="NAME", help="The XLA module to compare with, of a TRACE with several."),
]
