"""SCALE-Sim itself: writes its files, runs it, reads its report."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from meshcast.base import UnsupportedError
from meshcast.estimate.outside.environment import SCALESIM
from meshcast.estimate.outside.runs import ReportError, Runs
from meshcast.estimate.systolic import Layer, LayerResult, SystolicArray
from meshcast.estimate.systolic.files import config_text, layout_text, topology_text
from meshcast.estimate.systolic.scratchpads import Lie

PROCESS = Path(__file__).with_name("_scalesim_process.py")
# SCALE-Sim holds every word that every cycle wants, 8 bytes each and some of them several times: 3e8 words are about 10 GB
# and an hour.
MOST_WORDS = 300_000_000


def simulate_by_scalesim(layers: Sequence[Layer], array: SystolicArray) -> list[LayerResult]:
    """SCALE-Sim's report of every layer.

    Raises:
        UnsupportedError: It is not installed, a layer is too large for it, or it fails on one.
    """
    python, release = SCALESIM.ready()
    for layer in layers:
        _check_size(layer, array)
    runs = Runs(
        name="scalesim", title="SCALE-Sim", python=python, process=PROCESS, release=release,
        texts=functools.partial(_texts, array), read=_read_report,
    )  # fmt: skip
    return runs.all(layers, functools.partial(demanded_words, array=array))


def demanded_words(layer: Layer, array: SystolicArray) -> int:
    """Words that all cycles of a layer have room for: what SCALE-Sim's memory and time grow with."""
    return Lie.of(layer, array).cycles * (array.rows + 2 * array.columns)


def _check_size(layer: Layer, array: SystolicArray) -> None:
    words = demanded_words(layer, array)
    if words > MOST_WORDS:
        raise UnsupportedError(
            f"SCALE-Sim would have to hold {words:.2g} words for a product of {layer.m} x {layer.k} by {layer.k} x "
            f"{layer.n} on {array.rows} x {array.columns} cells; the limit is {MOST_WORDS:.2g}",
            where=layer.name or "layer",
            fix="use --simulator systolic, which counts the same cycles in closed form",
        )


def _texts(array: SystolicArray, layer: Layer) -> Mapping[str, str]:
    return {
        "config.cfg": config_text(array), "topology.csv": topology_text([layer]), "layout.csv": layout_text([layer]),
    }  # fmt: skip


def _read_report(folder: Path, layer: Layer) -> LayerResult:
    try:
        with (folder / "out" / "meshcast" / "COMPUTE_REPORT.csv").open(newline="") as file:
            rows = list(csv.reader(file, skipinitialspace=True))
        overall, total, stalls = (int(float(cell)) for cell in rows[1][1:4])
        shares = [float(cell) / 100 for cell in rows[1][4:7]]
    except (OSError, IndexError, ValueError) as error:
        raise ReportError(str(error)) from error
    return LayerResult(
        name=layer.name, compute_cycles=total - stalls, stall_cycles=stalls, total_cycles=total,
        cycles_with_prefetch=overall, utilisation=shares[0], mapping_efficiency=shares[1], compute_utilisation=shares[2],
    )  # fmt: skip
