"""`meshcast compare TARGET... --on X,Y --fidelity all`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.base import file_name
from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed, hardware_names
from meshcast.cli.flags import STAGES, FlagValues, runs
from meshcast.cli.patience import INTERRUPTED, patience

if TYPE_CHECKING:
    from meshcast.evidence import Cell, Comparison


@runs(
    *STAGES,
    without={
        "on": "it takes several",
        "fidelity": "it takes several",
        "levers": "answers are compared as they are asked for",
        "what_if": "changed hardware is a column of its own: --on h200,h200+memory.bandwidth=9.6TB/s",
    },
)
def compare_command(
    targets: flags.Targets,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            autocompletion=completed(hardware_names),
            help="Devices or clusters of the catalogue, or TOML files, with commas between them or one by one; of a job's"
            " file its own cluster by default.",
        ),
    ] = None,
    fidelity: Annotated[
        str | None,
        typer.Option(
            "--fidelity",
            help="Fidelities with commas between them; all: every one there is (default; auto with --try).",
        ),
    ] = None,
    tried: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="NAME=V;V",
            help="What is varied: plan, stack, batch or another setting or option, values with semicolons between them.",
        ),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            "--price", metavar="USD|list", help="Dollars of a device and hour; by default the catalogue's, dated."
        ),
    ] = None,
    plot: flags.PlotFlag = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Run folder; by default compare-TARGET in this folder."),
    ] = None,
    no_folder: Annotated[
        bool, typer.Option("--no-folder", help="Print only: keep no answers, tables or plot.")
    ] = False,
    measured: flags.MeasuredFlag = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="TABLES",
            help="With --measured, of a recommender that torchrec trained: its embedding tables, a file or a list. Layers, batch "
            "and plan follow from the traces, one a rank.",
        ),
    ] = None,
    steps: flags.StepsFlag = None,
    module: flags.ModuleFlag = None,
    *,
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Compares TARGETs over devices and fidelities: step times, ratios, and whether the order of designs survives.

    With --try also over plans, batches, stacks and other settings: MFU, memory, tokens a second, energy and cost of each.

    Answers are kept in the run folder as they come, beside table.csv, table.json, report.md and plot.svg: the same
    command goes on where it was interrupted. The exit code is 0 when every TARGET, and every fidelity asked for by
    name, was answered somewhere; what does not fit or is not supported elsewhere is part of the table.

    With --measured, one TARGET on one device is compared with a profile of a real run instead, kernel by kernel; nothing
    is written, and a trace of another program is refused (exit code 2). A recommender that torchrec trained on several devices
    is compared by kinds of kernels, with --tables.
    """
    from meshcast.base import UsageError
    from meshcast.cli.measured import show_measured
    from meshcast.evidence import ALL_FIDELITIES, Ask, RunFolder, comparison_answers, split_names
    from meshcast.evidence import comparison_plan as asked_grid

    if no_folder and out is not None:
        raise UsageError("--no-folder keeps nothing, --out says where to", where="--out", fix="give one of them")
    if plot is not None:
        from meshcast.report import check_plot

        if measured:
            raise UsageError(
                "--plot draws answers side by side, and a trace is no answer", where="--plot", fix="leave it out"
            )
        check_plot(plot)
    options = asked.options()
    names = split_names(",".join(on or ()))
    fidelity = fidelity or ("auto" if tried else ALL_FIDELITIES)
    if tables is not None and not measured:
        raise UsageError(
            "a recommender's tables are compared with a trace", where="--tables",
            fix="give --measured FOLDER, or use meshcast tables plan",
        )  # fmt: skip
    if measured:
        for flag, value in (("--try", tried), ("--price", price)):
            if value is not None:
                raise UsageError("a trace is compared with one prediction", where=flag, fix=f"leave {flag} out")
        if out is not None:
            raise UsageError("a comparison with a trace keeps no folder", where="--out", fix="use --json > FILE")
        if tables is not None:
            from meshcast.cli.measured_tables import show_measured_tables

            target, folder_given = _only(targets, "TARGET"), _only(measured, "--measured")
            return show_measured_tables(target, tables, folder_given, _only(names, "--on"), options.run.host, json=json)
        ask = Ask(target=_only(targets, "TARGET"), on=_only(names, "--on"), fidelity=_fidelity(fidelity))
        return show_measured(ask, measured, options, steps=steps, module=module, json=json)
    for flag, given in (("--steps", steps), ("--module", module)):
        if given is not None:
            raise UsageError(
                f"{flag} concerns a measured trace, and none is given", where=flag, fix="give --measured TRACE"
            )
    grid = asked_grid(
        targets,
        on=names,
        fidelities=split_names(fidelity),
        options=options,
        tried=tried or (),
        price=price,
    )
    folder = None if no_folder else RunFolder.opened(out or Path(_folder_name(grid.targets.given)))
    cells: list[Cell] = []
    interrupted = False
    try:
        with patience("comparing"):
            for cell in comparison_answers(grid, folder):
                cells.append(cell)
    except KeyboardInterrupt:
        interrupted = True
    comparison = grid.comparison(cells)
    if folder is not None and not interrupted:  # before printing: the reader of our output may leave (`| head`)
        folder.write(comparison, command=["meshcast", *sys.argv[1:]])
    if plot is not None and any(cell.step_time_s for cell in comparison.cells):
        from meshcast.report import comparison_figure, save_figure

        save_figure(comparison_figure([comparison.cell_json(cell) for cell in comparison.cells]), plot)
    _show(comparison, json=json)
    sys.stdout.flush()
    if folder is not None:
        print(_closing(comparison, folder.path, interrupted=interrupted), file=sys.stderr)
    if interrupted:
        raise typer.Exit(INTERRUPTED)
    if comparison.exit_code:
        _say_why(comparison)
        raise typer.Exit(comparison.exit_code)


def _only(names: list[str], what: str) -> str:
    """The one name that a comparison with a trace takes."""
    from meshcast.base import UsageError

    if len(names) != 1:
        raise UsageError(
            f"a trace is compared with one prediction, and there are {len(names)}", where=what, fix="give one"
        )
    return names[0]


def _fidelity(text: str) -> str:
    """`auto` where none is asked for by name."""
    from meshcast.evidence import ALL_FIDELITIES, split_names

    return "auto" if text == ALL_FIDELITIES else _only(split_names(text), "--fidelity")


def _show(comparison: Comparison, *, json: bool) -> None:
    from meshcast.cli.app import emit_json
    from meshcast.evidence import print_comparison

    if not json:
        print_comparison(comparison)
        return
    for cell in comparison.cells:
        emit_json(comparison.cell_json(cell))
    emit_json(comparison.to_json())


def _say_why(comparison: Comparison) -> None:
    """Errors of cells that nobody answered, each once, as every other verb tells them; the table has them in short."""
    said = {}
    for cell in comparison.cells:
        if cell.error is not None and cell.exit_code == comparison.exit_code:
            where, fix = cell.error.get("where"), cell.error.get("fix")
            text = f"{cell.error['code']}: {f'{where}: ' if where else ''}{cell.error['message']}"
            said[text] = text + (f"\n  fix: {fix}" if fix else "")
    for text in said.values():
        print(f"meshcast: {text}", file=sys.stderr)


def _closing(comparison: Comparison, path: Path, *, interrupted: bool) -> str:
    if interrupted:
        return (
            f"meshcast: interrupted; {len(comparison.cells)} answers are in {path}, the same command goes on from there"
        )
    reused = sum(cell.reused for cell in comparison.cells)
    again = f" ({reused} of {len(comparison.cells)} answers from earlier runs)" if reused else ""
    return f"meshcast: wrote {path}: table.csv, table.json, report.md, report.txt, plot.svg{again}"


def _folder_name(targets: Sequence[str]) -> str:
    """`compare-` and the first target's name, what a file name may not hold replaced."""
    more = f"-and-{len(targets) - 1}-more" if len(targets) > 1 else ""
    return f"compare-{file_name(targets[0])}{more}"
