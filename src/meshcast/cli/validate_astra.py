"""`meshcast validate astra FILE.csv`: our preset of ASTRA-sim's rules against ASTRA-sim's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.judged import end_judgement, judged


def astra_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.csv",
            help="Columns backend, topology, npus_count, bandwidth_GBps, latency_ns, algorithm, chunks, "
            "endpoint_delay_ns, collective, comm_size_bytes, finish_ns.",
        ),
    ],
    source: Annotated[
        str, typer.Option("--by", metavar="preset|astra-sim", help="Our preset, or ASTRA-sim's own programs.")
    ] = "preset",
    local_memory_bandwidth: Annotated[
        float, typer.Option("--local-mem-bw", help="GB/s at which NPUs reduce.", min=1e-9)
    ] = 1600.0,
    active_chunks: Annotated[int, typer.Option("--active-chunks", help="Chunks at work in a dimension.", min=1)] = 1,
    optimisation: Annotated[
        str, typer.Option("--collective-optimization", metavar="localBWAware|baseline", help="Of all-reduces.")
    ] = "localBWAware",
    limit: flags.FirstRows = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes to work in.", min=1)] = 1,
    json: flags.Json = False,
) -> None:
    """Runs collectives by ASTRA-sim's rules and compares them with what ASTRA-sim itself said.

    The exit code is 0 when the validation ran, even where rows failed: they are counted and named. Ctrl-C prints the
    summary of the rows done so far and exits with 130.
    """
    from meshcast.base import UsageError
    from meshcast.evidence import AstraSetting, AstraSummary, print_astra, read_astra_rows, validate_astra

    if source not in ("preset", "astra-sim"):
        raise UsageError(f"no source {source!r}", where="--by", fix="preset or astra-sim")
    if optimisation not in ("localBWAware", "baseline"):
        raise UsageError(
            f"no optimisation {optimisation!r}", where="--collective-optimization", fix="localBWAware or baseline"
        )
    setting = AstraSetting(
        optimisation=optimisation,  # type: ignore[arg-type]
        active_chunks=active_chunks,
        local_memory_bandwidth=local_memory_bandwidth,
    )
    rows = read_astra_rows(file, setting)[:limit]
    found = validate_astra(rows, source=source, jobs=jobs)  # type: ignore[arg-type]
    results, interrupted = judged(found, len(rows), "collectives", json=json)
    summary = AstraSummary(results=tuple(results), not_run=len(rows) - len(results))
    end_judgement(summary.to_json(), lambda: print_astra(summary), json=json, interrupted=interrupted)
