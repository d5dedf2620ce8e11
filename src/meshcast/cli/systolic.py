"""`meshcast systolic`: cycles, stalls and utilisation of layers on one systolic array."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.patience import patience
from meshcast.estimate import DEFAULT_SIMULATOR, LAYER_SIMULATORS, layer_simulator
from meshcast.options import positive, simulators_in_words

if TYPE_CHECKING:
    from meshcast.estimate import Layer, LayerResult, SystolicArray

# As in the configuration that SCALE-Sim's repository starts with, scale.cfg.
DEFAULT_KILOBYTES = (64, 64, 64)

Names = Annotated[str, typer.Option("--simulator", help=simulators_in_words(LAYER_SIMULATORS))]


def systolic_command(
    rows: Annotated[int | None, typer.Option("--rows", help="Rows of the array.", min=1)] = None,
    cols: Annotated[int | None, typer.Option("--cols", help="Columns of the array.", min=1)] = None,
    dataflow: Annotated[
        str | None, typer.Option("--dataflow", help="What stays in the cells: ws weights, os outputs, is inputs.")
    ] = None,
    gemm: Annotated[
        list[str] | None, typer.Option("--gemm", metavar="M,N,K", help="A product of M x K by K x N; may be repeated.")
    ] = None,
    conv: Annotated[
        list[str] | None,
        typer.Option(
            "--conv",
            metavar="H,W,FH,FW,C,F,STRIDE",
            help="A convolution, in the order of SCALE-Sim's topologies: map height and width (padded), filter height and "
            "width, channels, filters, stride; may be repeated.",
        ),
    ] = None,
    layers: Annotated[
        Path | None, typer.Option("--layers", metavar="FILE", help="Layers of a SCALE-Sim topology (CSV).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The array of a SCALE-Sim configuration (.cfg).")
    ] = None,
    sram: Annotated[
        str | None,
        typer.Option("--sram", metavar="IFMAP,FILTER,OFMAP", help="Scratchpads in kB of 1024 words; 64,64,64."),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            "--bandwidth",
            metavar="N or IFMAP,FILTER,OFMAP",
            help="Words a cycle to and from memory; without it operands are always in time (SCALE-Sim's mode CALC).",
        ),
    ] = None,
    simulator: Names = DEFAULT_SIMULATOR,
    json: flags.Json = False,
) -> None:
    """Cycles, stalls and utilisation of GEMM and convolution layers on an array of ROWS x COLS cells."""
    from meshcast.cli.app import emit_json

    array = _array(rows, cols, dataflow, config, sram, bandwidth)
    asked = _layers(gemm or [], conv or [], layers)
    with patience(f"simulating {len(asked)} layers"):
        results = layer_simulator(simulator)(asked, array)
    if json:
        for result in results:
            emit_json(asdict(result))
    else:
        own = None if simulator == DEFAULT_SIMULATOR else layer_simulator(DEFAULT_SIMULATOR)(asked, array)
        _print(results, array, simulator, own)


def _layers(gemms: list[str], convolutions: list[str], path: Path | None) -> list[Layer]:
    from meshcast.base import UsageError
    from meshcast.estimate import layers_of, read_layers

    found: list[Layer] = []
    for flag, texts, counts in (("--gemm", gemms, (3,)), ("--conv", convolutions, (7, 6))):
        for text in texts:
            order = "M,N,K" if flag == "--gemm" else "H,W,FH,FW,C,F,STRIDE"
            if "," not in text:
                raise UsageError(f"{text!r} is no list of numbers", where=flag, fix=f"write {flag} {order}")
            sizes = [positive(cell.strip(), flag) for cell in text.split(",")]
            if len(sizes) not in counts:
                raise UsageError(f"{text!r} has {len(sizes)} numbers", where=flag, fix=f"write {flag} {order}")
            # A convolution's stride may be left out; a product has three numbers as it is.
            found += layers_of(sizes if len(sizes) != 6 else [*sizes, 1], name=text)
    if path is not None:
        found += read_layers(path)
    if not found:
        raise UsageError("no layer is given", fix="give --gemm M,N,K, --conv H,W,FH,FW,C,F,STRIDE or --layers FILE")
    return found


def _array(
    rows: int | None, cols: int | None, dataflow: str | None, config: Path | None, sram: str | None,
    bandwidth: str | None,
) -> SystolicArray:  # fmt: skip
    """The configuration's array with what flags say instead, or that of the flags alone."""
    from meshcast.base import UsageError
    from meshcast.estimate import WORDS_PER_KB, ArrayBuffer, SystolicArray, read_config

    if config is not None:
        array = read_config(config)
    else:
        missing = [flag for flag, value in (("--rows", rows), ("--cols", cols), ("--dataflow", dataflow)) if not value]
        if missing:
            raise UsageError(f"{' and '.join(missing)} missing", fix="give them, or --config FILE.cfg")
        ifmap, filters, ofmap = (ArrayBuffer(words=size * WORDS_PER_KB, bandwidth=1) for size in DEFAULT_KILOBYTES)
        array = SystolicArray(
            rows=rows or 0, columns=cols or 0, dataflow=dataflow,  # type: ignore[arg-type]  # checked there
            ifmap=ifmap, filter=filters, ofmap=ofmap, estimated_bandwidth=True,
        )  # fmt: skip
    buffers = [array.ifmap, array.filter, array.ofmap]
    if sram is not None:
        sizes = _triple(sram, "--sram")
        buffers = [replace(b, words=size * WORDS_PER_KB) for b, size in zip(buffers, sizes, strict=True)]
    if bandwidth is not None:
        rates = _triple(bandwidth, "--bandwidth")
        buffers = [replace(b, bandwidth=rate) for b, rate in zip(buffers, rates, strict=True)]
    return replace(
        array, rows=rows or array.rows, columns=cols or array.columns,
        dataflow=dataflow or array.dataflow,  # type: ignore[arg-type]  # checked there
        ifmap=buffers[0], filter=buffers[1], ofmap=buffers[2],
        estimated_bandwidth=array.estimated_bandwidth and bandwidth is None,
    )  # fmt: skip


def _triple(text: str, flag: str) -> list[int]:
    from meshcast.base import UsageError

    numbers = [positive(cell.strip(), flag) for cell in text.split(",")]
    if len(numbers) not in (1, 3):
        raise UsageError(f"{text!r} has {len(numbers)} numbers", where=flag, fix=f"write {flag} N, or three numbers")
    return numbers * 3 if len(numbers) == 1 else numbers


def _print(results: list[LayerResult], array: SystolicArray, simulator: str, own: list[LayerResult] | None) -> None:
    """A table of the layers; of another simulator than ours with our own results' cycles beside its."""
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False, highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("layer")
    for heading in ("compute cycles", "stalls", "total", "utilisation", "mapping"):
        table.add_column(heading, justify="right")
    if own is not None:
        table.add_column("total, ours", justify="right")
    for result, ours in zip(results, own or results, strict=True):
        table.add_row(
            result.name or "-", f"{result.compute_cycles:,}", f"{result.stall_cycles:,}", f"{result.total_cycles:,}",
            f"{result.utilisation:.1%}", f"{result.mapping_efficiency:.1%}",
            *([f"{ours.total_cycles:,}"] if own is not None else []),
        )  # fmt: skip
    memory = "operands always in time" if array.estimated_bandwidth else (
        f"{array.ifmap.bandwidth}, {array.filter.bandwidth}, {array.ofmap.bandwidth} words a cycle"
    )  # fmt: skip
    by = f"; by {simulator}" if own is not None else ""
    console.print(f"{array.rows} x {array.columns} cells, {array.dataflow}; {memory}{by}", style="bold")
    console.print(table)
