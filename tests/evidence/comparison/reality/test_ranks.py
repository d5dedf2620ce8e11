"""Several ranks of one run, as PyTorch's profiler writes them: a file each, with NCCL's kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshcast.evidence.comparison.reality.asking import compare_measured
from meshcast.options.options import Options
from tests.evidence.profiler.traces import kernel_event

FIXTURES = Path(__file__).parents[3] / "fixtures"
RANKS, STEPS, PERIOD = 4, 4, 1000.0
STORAGE = "(ncclDevKernelArgsStorage<4096ul>)"


def rank_file(folder: Path, rank: int, *, late: float) -> Path:
    """A rank that comes to the all-reduce `late` microseconds after the first one; all are done with it at the same time.

    Product 35 us, addition 3, product 35 and what it is late, then an exchange of 30 us from when the last one (60 us) comes.
    """
    events: list[dict[str, Any]] = []
    for step in range(STEPS):
        begin = PERIOD * step
        ready = begin + 73.0 + late
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin - 5, "dur": PERIOD - 10},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:all_reduce", "ts": ready, "dur": 30.0},
            kernel_event("nvjet_gemm", begin, 35.0, correlation=10 * step, device=rank),
            kernel_event("elementwise_kernel", begin + 35.0, 3.0, correlation=10 * step + 1, device=rank),
            kernel_event("nvjet_gemm", begin + 38.0, 35.0 + late, correlation=10 * step + 2, device=rank),
            kernel_event(
                f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{STORAGE}", ready, 90.0 - late, correlation=10 * step + 3,
                device=rank, stream=20,
                **{
                    "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096, "Group size": RANKS,
                    "dtype": "BFloat16", "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]",
                },
            ),
        ]  # fmt: skip
        events += [
            {
                "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin + launch, "dur": 2.0,
                "args": {"correlation": 10 * step + launch},
            }
            for launch in range(4)
        ]  # fmt: skip
    path = folder / f"rank{rank}.json"
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": device, "name": "NVIDIA H100 80GB HBM3"} for device in range(RANKS)],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": RANKS},
        "traceEvents": events,
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [rank_file(tmp_path, rank, late=late) for rank, late in enumerate((0.0, 60.0, 20.0, 10.0))]


def test_ranks_are_told_apart_and_their_waiting_is_told(files: list[Path]) -> None:
    reality = compare_measured(str(FIXTURES / "sharded.mlir"), files, Options(on="dgx-h100"))
    assert [rank.trace.rank for rank in reality.ranks] == [0, 1, 2, 3]
    assert {len(rank.search.steps) for rank in reality.ranks} == {STEPS}
    assert any(note.startswith("4 devices measured, steps of 1 ms to 1 ms") for note in reality.notes)
    assert reality.shown.trace.rank == 3  # steps are equal: the one that computes neither most nor least
    note = next(note for note in reality.notes if "wait for other ranks" in note)
    assert "1 collectives of rank 3 (GPU:3) take 80 us, of which 50 us wait" in note
    assert "rank 1 (GPU:1)" in note
    row = next(row for row in reality.rows if row.kind == "collective: all-reduce")
    assert row.measured_s == pytest.approx(80e-6)


def test_ranks_whose_steps_differ_say_nothing_of_waiting(files: list[Path]) -> None:
    document = json.loads(files[1].read_text())
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("ts", 0.0) < 2.5 * PERIOD]
    files[1].write_text(json.dumps(document))
    reality = compare_measured(str(FIXTURES / "sharded.mlir"), files, Options(on="dgx-h100"))
    assert not any("wait for other ranks" in note for note in reality.notes)


def test_one_rank_alone_has_nobody_to_wait_for(files: list[Path]) -> None:
    reality = compare_measured(str(FIXTURES / "sharded.mlir"), files[:1], Options(on="dgx-h100"))
    assert not any("wait" in note for note in reality.notes)
    assert reality.to_json()["measured"][0]["rank"] == 0
