"""`meshcast validate ...`: our error against measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.base import UsageError, write_whole
from meshcast.cli import arguments as flags
from meshcast.cli.flags import FlagValues, runs
from meshcast.cli.judged import JUDGED, MEASURED, end_judgement, judged, runs_programs
from meshcast.cli.patience import counted
from meshcast.cli.validate_astra import astra_command
from meshcast.cli.validate_collectives import collectives_command
from meshcast.cli.validate_compiled import compiled_command
from meshcast.cli.validate_generated import generated_command
from meshcast.cli.validate_ops import ops_command
from meshcast.cli.validate_plans import plans_command
from meshcast.cli.validate_runs import runs_command
from meshcast.cli.validate_sets import sets_command
from meshcast.cli.validate_torch import torch_command

if TYPE_CHECKING:
    from meshcast.estimate import MeasuredProgram
    from meshcast.options import Options

app = typer.Typer(
    help="Predictions against measurements: how far off they are.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command("ops")(ops_command)
app.command("compiled")(compiled_command)
app.command("collectives")(collectives_command)
app.command("astra")(astra_command)
app.command("runs")(runs_command)
app.command("plans")(plans_command)
app.command("sets")(sets_command)
app.command("generated")(generated_command)
app.command("torch")(torch_command)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder with measurements.jsonl[.gz] and programs/ID.mlir[.gz].")
]


MEASURED_ON = "h200"


@app.command("programs")
@runs_programs(
    instead={"on": MEASURED_ON},
    without=MEASURED,
)
def programs_command(
    folder: Folder,
    asked: FlagValues,
    group: Annotated[list[str] | None, typer.Option("--group", help="Only this group; may be given again.")] = None,
    halves: Annotated[
        bool, typer.Option("--halves", help="Also the half that fits are made on and the held-out one, apart.")
    ] = False,
    kinds: Annotated[
        bool,
        typer.Option("--kinds", help="Times of kernels by kind instead: which are off by most, over all programs."),
    ] = False,
    limit: flags.FirstRows = None,
    jobs: flags.Jobs = 1,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the accuracy page to this file.")
    ] = None,
    json: flags.Json = False,
) -> None:
    """Predicts the measured programs of DIR and compares time, memory and energy.

    One-op groups are compared by device time (busy_us), whole models by wall time (wall_us). A row that states its
    indices' spread is predicted with that one, the others with --indices. The exit code is 0 when
    the validation ran, even where rows failed: they are counted and named. Ctrl-C prints the summary of the rows done
    so far and exits with 130.

    With --kinds the kernels of rows that have them are put side by side, by their names without numbers and by class;
    kernels are those of the optimized HLO beside a program where it was kept.
    """
    from meshcast.estimate import read_measured_programs
    from meshcast.evidence import accuracy_page, print_summary, read_peers, summarise, validate_programs

    if kinds and (halves or markdown is not None):
        raise UsageError(
            "kernels by kind are neither judged by halves nor written as a page", where="--kinds",
            fix=f"leave {'--halves' if halves else '--markdown'} out",
        )  # fmt: skip
    programs = read_measured_programs(folder, groups=group or (), limit=limit)
    peers = read_peers(folder)
    options = asked.options()
    if kinds:
        _by_kind(programs, options, jobs, json=json)
        return
    found = validate_programs(programs, options, jobs=jobs)
    rows, interrupted = judged(found, len(programs), "programs", json=json)
    summary = summarise(rows, peers, not_run=len(programs) - len(rows), halves=halves)
    if markdown is not None and not interrupted:  # before printing: the reader of our output may leave (`| head`)
        on, fidelity = str(options.on), options.estimate.fidelity
        profile = None if options.estimate.profile is None else str(options.estimate.profile)
        page = accuracy_page(
            summary, folder=folder, on=on, fidelity=fidelity, page=markdown, profile=profile,
            sources=_sources(on, fidelity, profile),
        )  # fmt: skip
        write_whole(markdown, page)
    end_judgement(summary.to_json(), lambda: print_summary(summary), json=json, interrupted=interrupted)


def _by_kind(programs: Sequence[MeasuredProgram], options: Options, jobs: int, *, json: bool) -> None:
    from meshcast.evidence import KindsSummary, print_kinds, validate_kinds

    rows, interrupted = judged(validate_kinds(programs, options, jobs=jobs), len(programs), "programs", json=json)
    summary = KindsSummary(rows=tuple(rows))
    end_judgement(summary.to_json(), lambda: print_kinds(summary), json=json, interrupted=interrupted)


def _sources(on: str, fidelity: str, profile: str | None) -> tuple[str, ...]:
    """What the measured kernels come from that a fidelity uses."""
    from meshcast.estimate import given_kernels, measured_kernels
    from meshcast.hardware import resolve

    if fidelity in ("roofline", "analytical", "simulated"):
        return ()
    device = resolve(on).device
    found = given_kernels(Path(profile), device).interpolator if profile else measured_kernels(device)
    return found.sources if found is not None else ()


@app.command("lowering")
def lowering_command(
    folder: Folder,
    on: flags.On = "h200",
    group: Annotated[list[str] | None, typer.Option("--group", help="Only this group; may be given again.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Programs of one op too, not whole models alone.")] = False,
    json: flags.Json = False,
) -> None:
    """Compares our kernels with those that XLA launched for the programs of DIR: how many, and the bytes they move.

    Launches are those that were measured; bytes are those of the optimized HLO, programs/ID.opt.hlo.gz, where it is.
    Three ways side by side: modelled, compiled (with the GPU compiler), and given: the HLO itself, read back.
    """
    from meshcast.cli.app import emit_json
    from meshcast.estimate import read_measured_programs
    from meshcast.evidence import LoweringSummary, print_lowering, validate_lowering
    from meshcast.hardware import resolve

    device = resolve(on).device
    programs = [p for p in read_measured_programs(folder, groups=group or ()) if every or group or p.whole_model]
    rows = []
    for row in counted(validate_lowering(programs, device), len(programs), "programs"):
        rows.append(row)
        if json:
            emit_json(row.to_json())
    summary = LoweringSummary(rows=tuple(rows))
    if json:
        emit_json(summary.to_json())
    else:
        print_lowering(summary)


@app.command("intervals")
@runs(
    "lowering",
    "estimate",
    "network",
    "run",
    instead={"on": MEASURED_ON},
    without=JUDGED
    | {
        "fidelity": "the intervals are roofline's",
        "profile": "roofline reads no measured kernels",
        "simulator": "roofline asks no simulator",
        "clocks": "short runs are compared at burst clocks",
    },
)
def intervals_command(
    folder: Folder,
    asked: FlagValues,
    jobs: flags.Jobs = 1,
    write: Annotated[Path | None, typer.Option("--write", help="File for the TOML; without it, it is printed.")] = None,
) -> None:
    """Fits the upper end of roofline's intervals on one half of the programs in DIR and judges it on the other."""
    import datetime

    from meshcast.estimate import read_measured_programs
    from meshcast.evidence import fit_intervals, interval_toml, validate_programs
    from meshcast.hardware import resolve

    programs = read_measured_programs(folder)
    options = asked.options(fidelity="roofline")
    rows = list(counted(validate_programs(programs, options, jobs=jobs), len(programs), "programs"))
    device = resolve(options.on).device
    fit = fit_intervals(rows, device.launch_latency_s * 1e6)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = interval_toml(fit, device=device.name, rows=len(rows), date=today)
    if write is None:
        typer.echo(text, nl=False)
        return
    write_whole(write, text)
    typer.echo(
        f"factor {fit.factor:.1f}, launches {fit.launches:.1f}: {fit.fitted_coverage:.1%} of {fit.fitted_rows} fitted "
        f"rows and {fit.held_out_coverage:.1%} of {fit.held_out_rows} others lie inside, groups weighing the same"
    )


@app.command("silicon")
def silicon_command(
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="Devices of the catalogue, with commas between them or one by one; by default all."),
    ] = None,
    ops: Annotated[str, typer.Option("--ops", help="gemm, attention, or both with a comma.")] = "gemm",
    sample: Annotated[int, typer.Option("--sample", help="Rows per device, op and type.", min=1)] = 500,
    fidelity: Annotated[
        str, typer.Option("--fidelity", help="An estimator; auto: analytical, which has not read the tables.")
    ] = "auto",
    framework: Annotated[
        str | None, typer.Option("--framework", help="Whose tables: trtllm, vllm, sglang; by default the plainest.")
    ] = None,
    quantisation: Annotated[
        float | None,
        typer.Option("--quantisation", help="Share of an f8 row that quantisation may take.", min=0, max=1),
    ] = None,
    markdown: flags.MarkdownPage = None,
    json: flags.Json = False,
) -> None:
    """Predicts kernels that others measured on other GPUs: the tables of aiconfigurator-core, the extra `silicon`.

    A sample of each table, the same every time, with as many rows of each size; errors per device, op, type and size.
    """
    from meshcast.cli.app import emit_json
    from meshcast.estimate import MOST_QUANTISATION, SYSTEMS
    from meshcast.evidence import SiliconSummary, print_silicon, silicon_page, split_names, validate_silicon

    devices = ",".join(on or SYSTEMS)
    quantisation = MOST_QUANTISATION if quantisation is None else quantisation
    asked = validate_silicon(
        split_names(devices),
        ops=split_names(ops),
        sample=sample,
        fidelity=fidelity,
        framework=framework,
        most_quantisation=quantisation,
    )
    rows = []
    for row in asked:
        rows.append(row)
        if json:
            emit_json({**row.row.to_json(), "size": row.size, "source": row.source})
    summary = SiliconSummary(rows=tuple(rows))
    if markdown is not None:
        command = f"meshcast validate silicon --on {devices} --ops {ops} --sample {sample} --fidelity {fidelity}"
        command += f" --quantisation {quantisation:g}" + (f" --framework {framework}" if framework else "")
        write_whole(markdown, silicon_page(summary, command=command, page=markdown))
    if json:
        emit_json(summary.to_json())
    else:
        print_silicon(summary)
