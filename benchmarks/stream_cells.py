"""Clocks of products on the digital array of cells, ours beside Stream's: python -m benchmarks.stream_cells --python PYTHON

The layers of `benchmarks/cells.py` at 8 bits, each a convolution of 1 x 1 on one core with its buffer and a memory behind it.
Stream (`pip install stream-dse six`, Python 3.12 or later) runs in a process of its own; what it says of a layer
are the array's clocks, with stalls, and those of the whole with what is moved before and after (docs/low-bit.md).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.cells import LAYERS
from meshcast.estimate.cells.mapping import mapped_product
from meshcast.estimate.outside.zigzag_cells import zigzag_texts
from meshcast.estimate.products import ArrayProduct
from meshcast.hardware import Device

DEVICES = ("edge-tpu", "aimc-28nm")
BITS = 8
WIDE = 65536  # bits a clock of links and of the memory behind: neither is to bound anything
PROCESS = """
import json, pathlib, shutil, sys
import numpy, onnx, stream
from onnx import TensorProto, helper
from stream.api import SolveOptions, evaluate_mapping
cores = pathlib.Path(stream.__file__).parent / "inputs/examples/hardware/cores"
for name in ("pooling", "simd"):
    shutil.copy(cores / f"{name}.yaml", f"{name}.yaml")
memory = (cores / "offchip.yaml").read_text().replace("bandwidth_max: 64", "bandwidth_max: WIDE")
pathlib.Path("offchip.yaml").write_text(memory)
m, k, n = json.loads(sys.argv[1])
given = helper.make_tensor_value_info("x", TensorProto.INT8, [1, k, 1, m])
made = helper.make_tensor_value_info("y", TensorProto.INT32, [1, n, 1, m])
weights = helper.make_tensor("w", TensorProto.INT8, [n, k, 1, 1], numpy.zeros(n * k, numpy.int8).tobytes(), raw=True)
node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", kernel_shape=[1, 1], strides=[1, 1], pads=[0, 0, 0, 0])
onnx.save(helper.make_model(helper.make_graph([node], "layer", [given], [made], [weights])), "layer.onnx")
found = evaluate_mapping("chip.yaml", "layer.onnx", "out", options=SolveOptions(time_limit_s=60, artifacts=False))
table = found.context.data["cost_lut"]
(node,) = table.get_nodes()
(core,) = table.get_cores(node)
cost = table.get_cost(node, core)
parts = [getattr(cost, name, None) for name in ("ideal_temporal_cycle", "latency_total2")]
pathlib.Path("answer.json").write_text(json.dumps([float(found.cycles), *parts], default=float))
""".replace("WIDE", str(WIDE))


def chip() -> dict[str, Any]:
    """The core, what Stream wants beside one, and the memory, all joined by wide links."""
    joined = [{"type": "link", "cores": [0, core], "bandwidth": WIDE} for core in (1, 2)]
    return {
        "name": "chip",
        "cores": {0: "./cells.yaml", 1: "./pooling.yaml", 2: "./simd.yaml", 3: "./offchip.yaml"},
        "offchip_core_id": 3,
        "unit_energy_cost": 0,
        "core_connectivity": [*joined, {"type": "bus", "cores": [0, 1, 2, 3], "bandwidth": WIDE}],
    }


def _yaml(value: Any) -> str:
    """JSON, which is YAML, but for keys that are numbers."""
    text = json.dumps(value)
    for core in range(4):
        text = text.replace(f'"{core}": ', f"{core}: ")
    return text


def asked(python: Path, layer: tuple[int, int, int], core: dict[str, Any]) -> list[float | None] | str:
    """Stream's clocks: the whole, the array's, with stalls; or why there are none."""
    with tempfile.TemporaryDirectory(prefix="meshcast-stream-") as name:
        folder = Path(name)
        (folder / "cells.yaml").write_text(json.dumps(core))
        (folder / "chip.yaml").write_text(_yaml(chip()))
        done = subprocess.run(
            [str(python), "-c", PROCESS, json.dumps(layer)], cwd=folder, capture_output=True, text=True, check=False
        )
        answer = folder / "answer.json"
        if not answer.exists():
            return (done.stderr.strip().splitlines() or ["no answer"])[-1]
        found: list[float | None] = json.loads(answer.read_text())
    return found


def main() -> None:
    """Asks Stream about every layer and prints its clocks beside ours."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="a Python that has stream-dse")
    given = parser.parse_args()
    print(f"{'device':10} {'layer':18} {'array':>7} {'stalls':>7}   Stream's: array, with stalls, whole")
    for device in DEVICES:
        cells = Device.load(device).cells
        assert cells is not None
        for layer, (m, k, n) in LAYERS.items():
            mapping = mapped_product(ArrayProduct(count=1, m=m, n=n, k=k), BITS, BITS, cells)
            core = dict(zigzag_texts(mapping, cells)["accelerator.yaml"])
            core |= {"type": "zigzag.compute", "operand_precision": {"input": "int8", "accumulator": "int32"}}
            found = asked(given.python.absolute(), (m, k, n), core)
            said = found if isinstance(found, str) else f"{found[1]}, {found[2] or 'not priced'}, {found[0]:.0f}"
            print(f"{device:10} {layer:18} {mapping.work_clocks:7.0f} {mapping.clocks:7.0f}   {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
