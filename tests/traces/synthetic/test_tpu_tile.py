"""Graphs as LayerDAG's repository has them are read without PyTorch, and the model is judged on them."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast.base.errors import InputError
from meshcast.traces import evaluate_tiles
from meshcast.traces.synthetic.tpu_tile import read_tpu_tile
from tests.torch_files import torch_file

Saved = tuple[list[int], list[int], list[int], float]


def saved(path: Path, graphs: list[Saved]) -> None:
    """Writes graphs (sources, targets, kinds, runtime) as LayerDAG has them."""
    rows = [[np.array(each, dtype=np.int64) for each in graph[:3]] for graph in graphs]
    lists: dict[str, Any] = {
        key: [row[place] for row in rows] for place, key in enumerate(("src_list", "dst_list", "x_n_list"))
    }
    path.write_bytes(torch_file({**lists, "y_list": [runtime for *_, runtime in graphs]}))


def chains(count: int) -> list[Saved]:
    """Chains of ops 1 and 2 in turn, which run as long as they are."""
    found = []
    for number in range(count):
        length = 3 + number % 20
        row = list(range(length))
        found.append((row[:-1], row[1:], [1 + place % 2 for place in row], float(length)))
    return found


def test_graphs_are_read_with_their_runtimes(tmp_path: Path) -> None:
    saved(tmp_path / "val.pth", [([0, 0, 1], [1, 2, 2], [18, 45, 29], 2.5)])
    (found,) = read_tpu_tile(tmp_path / "val.pth")
    assert found.runtime == 2.5
    assert [(node.kind, node.parents) for node in found.graph.nodes] == [
        ("op 18", ()), ("op 45", (0,)), ("op 29", (0, 1))
    ]  # fmt: skip


def test_the_model_is_judged_on_them(tmp_path: Path) -> None:
    """A chain's length is its runtime: what is grown for a runtime has that length, and a surrogate learns it."""
    saved(tmp_path / "val.pth", chains(60))
    saved(tmp_path / "test.pth", chains(25))
    found = evaluate_tiles(tmp_path, graphs=40, seed=1)
    assert (found.valid["generated"], found.held_out) == (40, 25)
    assert found.surrogates["generated"].spearman > 0.9
    assert found.distances["generated"]["in-degree"] < 0.1
    assert "bytes" not in found.distances["real"]


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "val.pth"
    with pytest.raises(InputError, match="cannot be read as graphs"):
        read_tpu_tile(path)
    path.write_bytes(b"no zip")
    with pytest.raises(InputError, match="not a zip"):
        read_tpu_tile(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Path("x")))
    with pytest.raises(InputError, match="it names pathlib"):
        read_tpu_tile(path)
    saved(path, [([1], [0], [1, 2], 1.0)])
    with pytest.raises(InputError, match="not before it"):
        read_tpu_tile(path)
