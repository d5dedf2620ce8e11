"""ZigZag's answers for products on arrays of cells that we describe to it, to hold `estimate.cells` against.

The array is told as `columns // slices` weights by `rows`, since ZigZag counts weights and not columns; analogue ones as its own
model of in-memory computing, digital ones as multipliers. Weights come from one memory at the device's rate, into cells that
hold one weight, or two where the next is written while one is in use; inputs and sums have ports of a whole row and column, as
`estimate.cells` has them beside the array. A product is a convolution of one tap: ZigZag's in-memory model takes no others.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshcast.base import UnsupportedError
from meshcast.estimate.cells.mapping import CellMapping
from meshcast.estimate.outside.environment import ZIGZAG
from meshcast.estimate.outside.zigzag import MEMORY_BITS, PROCESS, SUM_BITS, memory
from meshcast.hardware import CellArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ZigzagAnswer:
    """Clocks without stalls and with all of them, and the joules of the array."""

    ideal: float
    total: float
    array_joules: float


def ask_zigzag(mapping: CellMapping, cells: CellArray) -> ZigzagAnswer:
    """ZigZag's fastest mapping of the same product on one of the same arrays.

    Raises:
        UnsupportedError: It is not installed, there are several arrays or products, or it fails.
    """
    if cells.arrays != 1 or mapping.product.count != 1:
        raise UnsupportedError("ZigZag is asked for one product on one array", where="ZigZag")
    python, _ = ZIGZAG.ready()
    with tempfile.TemporaryDirectory(prefix="meshcast-zigzag-") as name:
        folder = Path(name)
        texts = zigzag_texts(mapping, cells)
        for file, value in texts.items():
            (folder / file).write_text(json.dumps(value))
        done = subprocess.run(
            [str(python), "-I", str(PROCESS), *texts], cwd=folder, capture_output=True, text=True, check=False
        )
        answer = folder / "answer.json"
        if not answer.exists():
            said = done.stderr.strip().splitlines()
            raise UnsupportedError(f"ZigZag failed: {said[-1] if said else 'no answer'}", where="ZigZag")
        found = json.loads(answer.read_text())
    return ZigzagAnswer(ideal=found["ideal"], total=found["total"], array_joules=found["energy"] * 1e-12)


def zigzag_texts(mapping: CellMapping, cells: CellArray) -> Mapping[str, Any]:
    """What ZigZag reads of a product on an array, by the names of the files: the array, how it is used, the layer."""
    rows, width = cells.rows, cells.columns // mapping.slices
    weight, activation = mapping.weight_bits, mapping.activation_bits
    both = ["D1", "D2"]
    held = 2 * weight if cells.double_buffered else weight
    array: dict[str, Any] = {"dimensions": both, "sizes": [width, rows]}
    if cells.converter_bits:
        array |= {
            "is_imc": True, "imc_type": "analog", "input_precision": [activation, weight],
            "bit_serial_precision": min(cells.input_bits, activation), "adc_resolution": cells.converter_bits,
        }  # fmt: skip
    else:
        array |= {"unit_energy": cells.energy.cell * 1e12, "unit_area": 1}
    beside = {"I1": activation * rows, "I2": cells.weight_bits_per_clock, "O": SUM_BITS * width}
    accelerator = {
        "name": "cells",
        "memories": {
            "cells": memory(held, {"I2": weight}, []),
            "inputs": memory(activation, {"I1": activation}, ["D1"]),
            "sums": memory(SUM_BITS, {"O": SUM_BITS}, ["D2"]),
            "buffer": memory(MEMORY_BITS, beside, both),
        },
        "operational_array": array,
    }
    product = mapping.product
    layer = {
        "id": 0, "name": "product", "operator_type": "Conv",
        "equation": "O[b][k][oy][ox]+=W[k][c][fy][fx]*I[b][c][iy][ix]",
        "dimension_relations": ["ix=1*ox+1*fx", "iy=1*oy+1*fy"],
        "loop_dims": ["B", "K", "C", "OY", "OX", "FY", "FX"], "loop_sizes": [1, product.n, product.k, 1, product.m, 1, 1],
        "operand_precision": {"W": weight, "I": activation, "O": SUM_BITS, "O_final": activation},
        "operand_source": {"I": 0, "W": 0},
    }  # fmt: skip
    spatial = {"D1": [f"K, {width}"], "D2": [f"C, {rows}"]}
    links = {"O": "O", "W": "I2", "I": "I1"}
    placed = {"name": "default", "spatial_mapping": spatial, "memory_operand_links": links}
    return {"accelerator.yaml": accelerator, "mapping.yaml": [placed], "workload.yaml": [layer]}
