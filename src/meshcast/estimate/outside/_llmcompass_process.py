"""Runs in LLMCompass's own Python and folder: REQUEST ANSWER, seconds of products; knows nothing of meshcast."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH = 2  # bytes of an operand: its products of batches know no others


def main(request: str, answer: str) -> None:
    """Writes the seconds of every product, in the order in which they were asked for."""
    sys.path[0] = str(Path.cwd())  # in place of this file's own folder, whose names are not meant
    # Where it has SCALE-Sim write what its table of small products lacks.
    Path("systolic_array_model/temp").mkdir(parents=True, exist_ok=True)
    from hardware_model.compute_module import (  # type: ignore[import-not-found]
        ComputeModule,
        Core,
        SystolicArray,
        VectorUnit,
        overhead_dict,
    )
    from hardware_model.device import Device  # type: ignore[import-not-found]
    from hardware_model.io_module import IOModule  # type: ignore[import-not-found]
    from hardware_model.memory_module import MemoryModule  # type: ignore[import-not-found]
    from software_model.matmul import BatchedMatmul, Matmul  # type: ignore[import-not-found]
    from software_model.utils import Tensor, data_type_dict  # type: ignore[import-not-found]

    asked = json.loads(Path(request).read_text())
    chip = asked["device"]
    vectors = VectorUnit(chip["vector_flops"], WIDTH, 35, 32, chip["sublanes"])
    arrays = SystolicArray(chip["array"], chip["array"], chip["multiply_adds"], WIDTH, WIDTH)
    core = Core(vectors, arrays, chip["sublanes"], chip["core_bytes"])
    compute = ComputeModule(
        core, chip["cores"], chip["clock_hz"], chip["cache_bytes"], chip["cache_bytes_per_cycle"], overhead_dict["A100"]
    )
    device = Device(compute, IOModule(chip["memory_bandwidth"], 1e-6), MemoryModule(chip["memory_bytes"]))
    data_type = data_type_dict["fp16"]
    found = []
    for batch, m, n, k in asked["products"]:
        product = Matmul(data_type) if batch == 1 else BatchedMatmul(data_type)
        lead = [] if batch == 1 else [batch]
        product(Tensor([*lead, m, k], data_type), Tensor([*lead, k, n], data_type))
        found.append(float(product.compile_and_simulate(device, "heuristic-GPU")))
        Path(answer).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
