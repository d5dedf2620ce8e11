"""Run folders: what is finished is there whatever ends a run, each point once, and folders of one space become one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshcast.base import UsageError
from meshcast.explore import Exploration, Tally
from meshcast.explore import store as stores
from meshcast.explore.kept_points import POINTS, ordered, read_points
from meshcast.explore.point import Outcome, Point
from meshcast.explore.space import Space, SpaceAxis
from meshcast.explore.store import ENVIRONMENT, SUMMARY, TABLE, RunStore, merged
from meshcast.hardware import swept_numbers

SPACE = Space(model="m", asked={"on": "h100-sxm"}, axes=(SpaceAxis(name="set.batch", values=(1, 2, 3)),))
OTHER = Space(model="m", asked={"on": "h100-sxm"}, axes=(SpaceAxis(name="set.batch", values=(1, 2)),))


def _outcome(seconds: float) -> Outcome:
    return Outcome(status="answered", step_time_s=seconds, breakdown_s={"compute": seconds})


def _opened(path: Path, space: Space = SPACE, *, resume: bool = False) -> RunStore:
    return RunStore.opened(path, space, "text", resume=resume, command=["meshcast"])


def test_finished_points_are_there_again(tmp_path: Path) -> None:
    store = _opened(tmp_path / "run")
    points = list(SPACE.points())
    store.keep(points[2], _outcome(2.0))
    store.keep(points[0], _outcome(0.5))
    store.keep(points[1], Outcome(status="failed", error="a bug"))
    again = _opened(tmp_path / "run", resume=True)
    assert again.kept() == {2: _outcome(2.0), 0: _outcome(0.5)}, "what failed is asked again"
    assert [point for point, _ in read_points(tmp_path / "run")] == [points[2], points[0], points[1]]
    assert [point.number for point, _ in ordered(tmp_path / "run")] == [0, 1, 2]


@pytest.mark.parametrize("cut", ['{"point": {"numb', "x" * 200_000])
def test_a_line_that_was_cut_off_is_taken_away_and_the_next_one_is_whole(tmp_path: Path, cut: str) -> None:
    store = _opened(tmp_path / "run")
    points = list(SPACE.points())
    store.keep(points[0], _outcome(1.0))
    file = tmp_path / "run" / POINTS
    with file.open("a") as open_file:
        open_file.write(cut)
    again = _opened(tmp_path / "run", resume=True)
    assert again.kept() == {0: _outcome(1.0)}
    again.keep(points[1], _outcome(2.0))
    assert again.kept() == {0: _outcome(1.0), 1: _outcome(2.0)}
    assert [json.loads(line)["point"]["number"] for line in file.read_text().splitlines()] == [0, 1]


def test_a_whole_line_without_its_end_stays(tmp_path: Path) -> None:
    store = _opened(tmp_path / "run")
    points = list(SPACE.points())
    store.keep(points[0], _outcome(1.0))
    file = tmp_path / "run" / POINTS
    file.write_text(file.read_text().rstrip("\n"))
    again = _opened(tmp_path / "run", resume=True)
    again.keep(points[1], _outcome(2.0))
    assert again.kept() == {0: _outcome(1.0), 1: _outcome(2.0)}
    assert len(file.read_text().splitlines()) == 2


def test_a_folder_whose_only_line_was_cut_off_begins_again(tmp_path: Path) -> None:
    store = _opened(tmp_path / "run")
    (tmp_path / "run" / POINTS).write_text('{"po')
    store.keep(next(SPACE.points()), _outcome(1.0))
    assert _opened(tmp_path / "run", resume=True).kept() == {0: _outcome(1.0)}


def test_a_point_that_was_done_twice_counts_once_as_it_was_last(tmp_path: Path) -> None:
    store = _opened(tmp_path / "run")
    point = next(SPACE.points())
    store.keep(point, _outcome(1.0))
    store.keep(point, _outcome(3.0))
    assert list(ordered(tmp_path / "run")) == [(point, _outcome(3.0))]


def test_what_a_folder_refuses(tmp_path: Path) -> None:
    store = _opened(tmp_path / "run")
    store.keep(next(SPACE.points()), _outcome(1.0))
    with pytest.raises(UsageError, match="earlier run"):
        _opened(tmp_path / "run")
    with pytest.raises(UsageError, match="another space"):
        _opened(tmp_path / "run", OTHER, resume=True)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not empty"):
        _opened(tmp_path / "else")


def test_folders_of_several_machines_become_one(tmp_path: Path) -> None:
    points = list(SPACE.points())
    for name, numbers in (("a", (0, 1)), ("b", (1, 2))):
        store = _opened(tmp_path / name)
        for number in numbers:
            store.keep(points[number], _outcome(number + 1.0))
    assert merged([tmp_path / "a", tmp_path / "b"], tmp_path / "both") == 3
    assert [point.number for point, _ in ordered(tmp_path / "both")] == [0, 1, 2]
    assert _opened(tmp_path / "both", resume=True).kept()[2] == _outcome(3.0)
    _opened(tmp_path / "other", OTHER)
    with pytest.raises(UsageError, match="another space"):
        merged([tmp_path / "a", tmp_path / "other"], tmp_path / "none")
    with pytest.raises(UsageError, match="other: its points are of another space"):
        merged([tmp_path / "other"], tmp_path / "none", SPACE)
    with pytest.raises(UsageError, match="no exploration's folder"):
        merged([tmp_path], tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_summary_the_table_and_the_environment(tmp_path: Path) -> None:
    store = _opened(tmp_path / "run")
    for number, point in enumerate(SPACE.points()):
        store.keep(point, _outcome(float(number)) if number else Outcome(status="infeasible"))

    def row(point: Point, outcome: Outcome) -> dict[str, object]:
        return {"number": point.number, **point.columns(), **outcome.columns()}

    written = store.finish({"schema": "x"}, row)
    folder = tmp_path / "run"
    assert json.loads((folder / SUMMARY).read_text()) == {"schema": "x"}
    told = json.loads((folder / ENVIRONMENT).read_text())
    assert told["command"] == ["meshcast"]
    assert told["packages"]["jax"]
    if TABLE not in written:
        pytest.skip("pyarrow is not installed")
    table = pytest.importorskip("pyarrow.parquet").read_table(folder / TABLE)
    assert table.column("number").to_pylist() == [0, 1, 2]
    assert table.column("step_time_s").to_pylist() == [None, 1.0, 2.0]
    assert table.column("set.batch").to_pylist() == ["1", "2", "3"]


def test_swept_numbers_are_columns_of_the_table(tmp_path: Path) -> None:
    """In SI units, so that a query groups by them; of points that have none of their own there is nothing."""
    parquet = pytest.importorskip("pyarrow.parquet")
    axes = (
        SpaceAxis(name="hardware.memory.bandwidth", values=("2x", "3 TB/s")),
        SpaceAxis(name="hardware.nvlink.size", values=("4",)),
    )
    space = Space(model="gpt2-tiny", asked={"on": "dgx-h100", "settings": {"batch": "2"}}, axes=axes)
    store = RunStore.opened(tmp_path / "run", space, "", resume=False)
    for point in space.points():
        store.keep(point, _outcome(1.0))
    found = Exploration(found=(), tally=Tally(), objectives=())
    store.finish({"schema": "x"}, found.row_of)
    table = parquet.read_table(tmp_path / "run" / TABLE)
    assert table.column("hardware.memory.bandwidth").to_pylist() == pytest.approx([6.7e12, 3e12], rel=1e-9)
    assert table.column("hardware.nvlink.size").to_pylist() == [4.0, 4.0]
    assert swept_numbers("dgx-h100") == {}


def test_a_table_is_written_whole_and_no_more_than_a_block_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(stores, "ROWS", 2)
    walked: list[int] = []

    def rows(most: int) -> Iterator[dict[str, Any]]:
        for number in range(5):
            if len(walked) == most:
                raise KeyboardInterrupt
            walked.append(number)
            yield {"number": number, **({"late": 0.5} if number == 4 else {}), "nested": {"left": "out"}}

    with pytest.raises(KeyboardInterrupt):
        stores.write_table(tmp_path / "points.parquet", lambda: rows(8))
    assert list(tmp_path.iterdir()) == []
    walked.clear()
    assert stores.write_table(tmp_path / "points.parquet", lambda: rows(99))
    assert walked == [*range(5), *range(5)]
    table = parquet.read_table(tmp_path / "points.parquet").to_pylist()
    assert table == [{"number": n, "late": 0.5 if n == 4 else None} for n in range(5)]
    assert not stores.write_table(tmp_path / "none.parquet", lambda: [])
