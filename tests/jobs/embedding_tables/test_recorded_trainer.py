"""Traces of a torchrec DLRM, two ranks written by hand: the model, tables and plan that they tell, and the step beside ours."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast.base import MeshcastError, UsageError
from meshcast.cli.app import app
from meshcast.hardware import resolve
from meshcast.jobs import EmbeddingTable, measured_trainer, read_trainer

TABLES = tuple(EmbeddingTable(name=f"t{n}", rows=rows, dim=8) for n, rows in enumerate((1000, 300, 20, 7)))
BATCH, RANKS = 4, 2
# t0 and t1 lie on ranks of their own, the two small ones on both; 8 + 10 columns are read above the dot products of 5 features.
WIDTHS = [(13, 16), (16, 8), (18, 32), (32, 1)]
LOOK_UP = "fbgemm::split_embedding_codegen_lookup_adagrad_function"


def _rank(rank: int, *, widths: list[tuple[int, int]] = WIDTHS, rows: int | None = None) -> list[dict[str, Any]]:
    begin = 1000 * rank  # the second is profiled a millisecond later

    def event(name: str, cat: str, at: float, dur: float, **args: Any) -> dict[str, Any]:
        return {"name": name, "cat": cat, "ts": begin + at, "dur": dur, "ph": "X", "args": args}

    elements = 8 * (rows if rows is not None else TABLES[rank].rows)
    shapes: list[list[int]] = [[] for _ in range(12)]
    shapes[1], shapes[4], shapes[11] = [elements], [1], [BATCH * RANKS]
    return [
        event("ProfilerStep#10", "user_annotation", 0, 5000 + rank),
        *(
            event("aten::linear", "cpu_op", 10 + n, 1, **{"Input Dims": [[BATCH, a], [b, a], [b]]})
            for n, (a, b) in enumerate(widths)
        ),
        event(LOOK_UP, "cpu_op", 5, 1, **{"Input Dims": shapes}),
        event("void at::native::reduce_kernel<512>", "kernel", 30, 7),
        event("volta_sgemm_32x32", "kernel", 40, 20),
        event("ncclKernel_SendRecv", "kernel", 50, 100 - 90 * rank),
        event("ncclKernel_AllReduce", "kernel", 60, 15),
    ]  # fmt: skip


def _written(folder: Path, **changed: Any) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(RANKS):
        (folder / f"worker{rank}_step.json").write_text(json.dumps({"traceEvents": _rank(rank, **changed)}))
    return folder


def test_model_tables_and_plan_follow_from_the_traces(tmp_path: Path) -> None:
    found = read_trainer(_written(tmp_path / "traces"), TABLES)
    assert (found.step_s, found.batch, found.held, found.lists) == (
        pytest.approx(5001e-6),
        BATCH,
        (("t0",), ("t1",)),
        False,
    )
    assert (found.layers.bottom, found.layers.top, found.layers.dim, found.layers.dense) == ((16, 8), (32, 1), 8, 13)
    # The exchange is as long as the rank sees it that came last.
    assert {kind: round(1e6 * s) for kind, s in found.kinds_s.items()} == {
        "sums": 7, "products": 20, "all-to-all": 10, "all-reduce": 15,
    }  # fmt: skip
    plan = found.plan(TABLES)
    assert [(each["sharding"], each["ranks"]) for each in plan] == [
        ("table_wise", [0]), ("table_wise", [1]), ("data_parallel", [0, 1]), ("data_parallel", [0, 1]),
    ]  # fmt: skip


def test_packed_traces_are_ordered_by_their_ranks(tmp_path: Path) -> None:
    folder = _written(tmp_path / "traces")
    for path in list(folder.iterdir()):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert read_trainer(folder, TABLES).held == (("t0",), ("t1",))


def test_a_recorded_step_is_predicted(tmp_path: Path) -> None:
    found = measured_trainer(_written(tmp_path / "traces"), TABLES, resolve("dgx-v100"))
    assert found.predicted_s > found.alone_s > sum(found.kinds_s.values()) > 0
    assert {"sums", "all-to-all", "tables", "products", "elementwise"} <= set(found.kinds_s)
    faster = measured_trainer(tmp_path / "traces", TABLES, resolve("dgx-v100"), host="fast")
    assert faster.alone_s < found.alone_s
    assert "largest are predicted in" in list(found.lines())[-1]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows": 999}, "0 choices of 1 tables have a rank's 7,992 elements"),
        (
            {"widths": [(13, 16), (16, 8), (40, 32), (32, 1)]},
            "read 40 columns, and DLRM's over 4 tables of 8 columns are 18",
        ),
        ({"widths": []}, "0 linear layers with shapes"),
    ],
)
def test_traces_of_another_model_are_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(MeshcastError, match=said):
        read_trainer(_written(tmp_path / "traces", **changed), TABLES)


def test_what_are_no_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeshcastError, match="is no folder of traces"):
        read_trainer(tmp_path / "nowhere", TABLES)
    with pytest.raises(MeshcastError, match="has no traces"):
        read_trainer(tmp_path, TABLES)
    (tmp_path / "worker0.json").write_text('{"events": 1}')
    with pytest.raises(MeshcastError, match="has no list of events"):
        read_trainer(tmp_path, TABLES)
    (tmp_path / "worker0.json").write_text('{"traceEvents": [')
    with pytest.raises(MeshcastError, match="is not JSON"):
        read_trainer(tmp_path, TABLES)


def test_compare_measured_takes_a_recommenders_tables(tmp_path: Path) -> None:
    tables = tmp_path / "tables.csv"
    tables.write_text("name,rows,dim\n" + "".join(f"{t.name},{t.rows},{t.dim}\n" for t in TABLES))
    folder = str(_written(tmp_path / "traces"))
    asked = ["compare", "dlrm-criteo", "--tables", str(tables), "--on", "dgx-v100"]
    done = CliRunner().invoke(app, [*asked, "--measured", folder, "--json"])
    assert done.exit_code == 0
    told = json.loads(done.output)
    assert (told["schema"], told["batch"]) == ("meshcast.measured-tables/1", BATCH)
    assert told["measured_s"] == pytest.approx(5001e-6)
    done = CliRunner().invoke(app, [*asked, "--measured", folder])
    assert "all ranks  t2, t3" in done.output
    assert isinstance(CliRunner().invoke(app, asked).exception, UsageError)
    other = CliRunner().invoke(app, ["compare", "two-tower", *asked[2:], "--measured", folder])
    assert "two-tower is no DLRM" in str(other.exception)
