"""ZigZag: a search over loop orders on an array that we describe to it, weights in the cells.

Cells hold one weight and one partial sum each. One scratchpad, of all three buffers' size, feeds them a word a row and a weight a
column in a cycle; memory is behind it at the buffers' bandwidths, or as fast as the scratchpad where they are only estimated.
Words have 8 bits, sums 32; energies are not asked for. After the interface of zigzag-dse 3.9.1
(https://github.com/KULeuven-MICAS/zigzag).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.estimate.outside.environment import ZIGZAG
from meshcast.estimate.outside.runs import ReportError, Runs
from meshcast.estimate.systolic import Layer, LayerResult, SystolicArray
from meshcast.estimate.systolic.cycles import mapping_efficiency
from meshcast.estimate.systolic.layer import product_shapes

PROCESS = Path(__file__).with_name("_zigzag_process.py")
WORD_BITS, SUM_BITS = 8, 32
MEMORY_BITS = 2**50  # larger than any operand


def simulate_by_zigzag(layers: Sequence[Layer], array: SystolicArray) -> list[LayerResult]:
    """ZigZag's fastest mapping of every layer.

    Raises:
        UnsupportedError: It is not installed, fails on a layer, or the dataflow is not that of stationary weights.
    """
    if array.dataflow != "ws":
        raise UnsupportedError(
            f"ZigZag is asked for stationary weights alone, not for {array.dataflow!r}",
            where="--dataflow",
            fix="use --dataflow ws",
        )
    python, release = ZIGZAG.ready()
    runs = Runs(
        name="zigzag", title="ZigZag", python=python, process=PROCESS, release=release,
        texts=functools.partial(_texts, array), read=functools.partial(_read_answer, array),
    )  # fmt: skip
    return runs.all(layers, lambda layer: layer.m * layer.n * layer.k)


def _texts(array: SystolicArray, layer: Layer) -> Mapping[str, str]:
    """ZigZag's three input files of a layer; JSON is YAML too."""
    files = {
        "accelerator.yaml": _accelerator(array),
        "mapping.yaml": _mapping(array),
        "workload.yaml": _workload(layer),
    }
    return {name: json.dumps(value) for name, value in files.items()}


def _accelerator(array: SystolicArray) -> dict[str, Any]:
    # The array takes a word a row, a weight a column and a sum a column in every cycle.
    edges = {"I1": WORD_BITS * array.rows, "I2": WORD_BITS * array.columns, "O": SUM_BITS * array.columns}
    buffers = {"I1": array.ifmap, "I2": array.filter, "O": array.ofmap}
    given = {operand: WORD_BITS * buffer.bandwidth for operand, buffer in buffers.items()}
    words = sum(buffer.words for buffer in buffers.values())
    both = ["D1", "D2"]
    return {
        "name": "array",
        "memories": {
            "weights": memory(WORD_BITS, {"I2": WORD_BITS}, []),
            "sums": memory(SUM_BITS, {"O": SUM_BITS}, []),
            "scratchpad": memory(words * WORD_BITS, edges, both),
            "memory": memory(MEMORY_BITS, edges if array.estimated_bandwidth else given, both),
        },
        "operational_array": {
            "unit_energy": 1, "unit_area": 1, "dimensions": both, "sizes": [array.columns, array.rows],
        },
    }  # fmt: skip


def memory(bits: int, widths: Mapping[str, int], served: list[str]) -> dict[str, Any]:
    """A memory with a port for every direction of every operand: `f`rom or `t`o, the `l`ower or the `h`igher level."""
    ways = [(o, way) for o in widths for way in (("fh", "tl", "fl", "th") if o == "O" else ("fh", "tl"))]
    ports = [
        {
            "name": f"{'w' if way.startswith('f') else 'r'}_port_{number}",
            "type": "write" if way.startswith("f") else "read",
            "bandwidth_min": min(WORD_BITS, widths[operand]), "bandwidth_max": widths[operand],
            "allocation": [f"{operand}, {way}"],
        }
        for number, (operand, way) in enumerate(ways, start=1)
    ]  # fmt: skip
    return {
        "size": bits, "r_cost": 1, "w_cost": 1, "area": 0, "latency": 1, "operands": list(widths), "ports": ports,
        "served_dimensions": served,
    }  # fmt: skip


def _mapping(array: SystolicArray) -> list[dict[str, Any]]:
    spatial = {"D1": [f"K, {array.columns}"], "D2": [f"C, {array.rows}"]}
    return [
        {"name": "default", "spatial_mapping": spatial, "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"}}
    ]  # fmt: skip


def _workload(layer: Layer) -> list[dict[str, Any]]:
    return [
        {
            "id": 0, "name": "product", "operator_type": "Gemm", "equation": "O[b][k]+=W[k][c]*I[b][c]",
            "loop_dims": ["B", "K", "C"], "loop_sizes": [layer.m, layer.n, layer.k],
            "operand_precision": {"W": WORD_BITS, "I": WORD_BITS, "O": SUM_BITS, "O_final": WORD_BITS},
            "operand_source": {"I": 0, "W": 0},
        }
    ]  # fmt: skip


def _read_answer(array: SystolicArray, folder: Path, layer: Layer) -> LayerResult:
    try:
        answer = json.loads((folder / "answer.json").read_text())
        ideal, total = round(answer["ideal"]), round(answer["total"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(str(error)) from error
    m, n, k = product_shapes([layer])
    work = layer.m * layer.n * layer.k / array.cells
    return LayerResult(
        name=layer.name, compute_cycles=ideal, stall_cycles=total - ideal, total_cycles=total,
        cycles_with_prefetch=total, utilisation=work / total,
        mapping_efficiency=float(mapping_efficiency(m, n, k, array)[0]), compute_utilisation=work / ideal,
    )  # fmt: skip
