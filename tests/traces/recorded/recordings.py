"""Small recordings by hand: a step of two ranks as PyTorch's profiler and execution trace would write it.

Microseconds from the rank's begin. Thread 1 runs `aten::mm` (0 to 20), which launches a product at 5; a pause to 30; a call of
`c10d::allreduce_` (30 to 50) that launches the collective at 40; a synchronisation from 50 on until the collective is done, and
5 us more. The product runs from 12 to 32, the collective from `arrives` to `done`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

BASE = 1_700_000_000_000_000
TENSOR = [7, 8, 0, 64, 4, "cuda:0"]
LISTED = '[{"pg_name": "0", "ranks": [0, 1], "group_size": 2}]'
NODES: list[dict[str, Any]] = [
    {"id": 1, "name": "[pytorch|profiler|execution_trace|process]", "parent": 1, "rf_id": 0},
    {"id": 2, "name": "[pytorch|profiler|execution_trace|thread]", "parent": 1, "rf_id": 0},
    {
        "id": 3, "name": "aten::mm", "parent": 2, "rf_id": 11, "values": [TENSOR, TENSOR], "shapes": [[8, 8], [8, 8]],
        "types": ["Tensor(float)", "Tensor(float)"], "out": [TENSOR], "out_shapes": [[8, 8]], "out_types": ["Tensor(float)"],
    },
    {"id": 4, "name": "c10d::allreduce_", "parent": 2, "rf_id": 12},
    {
        "id": 5, "name": "record_param_comms", "parent": 4, "rf_id": 13, "types": ["GenericList[Tensor(float)]"],
        "values": [[TENSOR], 1, ["0", "default_pg"], 0, "allreduce", [], []], "shapes": [[[64]]],
    },
]  # fmt: skip


def execution_trace(generation: int) -> dict[str, Any]:
    """The execution trace of a rank, in the schema's first or second generation."""
    nodes = []
    for node in NODES:
        said = {"rf_id": node["rf_id"], "tid": 1, "op_schema": ""}
        read = [node.get(key, []) for key in ("values", "shapes", "types")]
        written = [node.get(key, []) for key in ("out", "out_shapes", "out_types")]
        names = ("values", "shapes", "types")
        if generation == 1:
            made = {"id": node["id"], "name": node["name"], "parent": node["parent"], **said}
            made |= dict(zip(("inputs", "input_shapes", "input_types"), read, strict=True))
            made |= dict(zip(("outputs", "output_shapes", "output_types"), written, strict=True))
        else:
            made = {"id": node["id"], "name": node["name"], "ctrl_deps": node["parent"]}
            made |= {"inputs": dict(zip(names, read, strict=True)), "outputs": dict(zip(names, written, strict=True))}
            made["attrs"] = [{"name": key, "type": "uint64", "value": value} for key, value in said.items()]
        nodes.append(made)
    return {"schema": "1.0.1" if generation == 1 else "1.1.0-chakra.0.0.4", "pid": 1, "nodes": nodes}


def profile(
    rank: int, *, begins: int = 0, arrives: int = 42, done: int = 62, clock: int = 0, record: bool = True, world: int = 2,
    collective: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
) -> dict[str, Any]:  # fmt: skip
    """The profile of a rank that begins at a time of its own, with a clock that may be ahead."""
    base = BASE + begins + clock

    def event(cat: str, name: str, start: int, end: int, **args: Any) -> dict[str, Any]:
        tid = args.get("stream", 1)
        return {
            "ph": "X", "cat": cat, "name": name, "ts": base + start, "dur": end - start, "pid": 0, "tid": tid, "args": args
        }  # fmt: skip

    def op(name: str, start: int, end: int, external: int, number: int, cat: str = "cpu_op") -> dict[str, Any]:
        more = {"Record function id": number} if record else {}
        return event(cat, name, start, end, **{"External id": external}, **more)

    events = [
        op("aten::mm", 0, 20, 1, 11),
        event("python_function", "train.py(3): step", 0, 60),
        event("cuda_runtime", "cudaLaunchKernel", 5, 9, correlation=100, **{"External id": 1}),
        event("kernel", "volta_sgemm_32x32", 12, 32, correlation=100, stream=7, **{"External id": 1}),
        op("c10d::allreduce_", 30, 50, 2, 12),
        op("record_param_comms", 32, 48, 3, 13),
        event("cuda_runtime", "cudaLaunchKernelExC", 40, 42, correlation=101, **{"External id": 3}),
        event("kernel", collective, arrives, done, correlation=101, stream=20, **{"External id": 3}),
        event("cuda_runtime", "cudaDeviceSynchronize", 50, done + 5, correlation=102),
    ]
    return {
        "schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events,
        "deviceProperties": [{"id": 0, "name": "A GPU"}],
    }  # fmt: skip


def write(folder: Path, name: str, content: dict[str, Any]) -> Path:
    """A file of JSON."""
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(content))
    return path
