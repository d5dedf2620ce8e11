"""Graphs as LayerDAG's repository has them are read without PyTorch, and the model is judged on them."""

from __future__ import annotations

import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshcast.base.errors import InputError
from meshcast.synthetic import evaluate_tiles
from meshcast.synthetic.tpu_tile import read_tpu_tile


class _Tensor:
    """Pickled as PyTorch pickles a tensor of whole numbers."""

    def __init__(self, numbers: list[int], place: int) -> None:
        self.numbers, self.place = np.array(numbers, dtype="<i8"), place

    def __reduce__(self) -> tuple[Any, ...]:
        torch = sys.modules["torch._utils"]
        stored = _Storage(self.place)
        return torch._rebuild_tensor_v2, (stored, 0, self.numbers.shape, (1,), False, OrderedDict())


class _Storage:
    def __init__(self, place: int) -> None:
        self.place = place


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, _Storage):
            return ("storage", sys.modules["torch"].LongStorage, str(obj.place), "cpu", 1)
        return None


def saved(
    path: Path, graphs: list[tuple[list[int], list[int], list[int], float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes graphs (sources, targets, kinds, runtime) as `torch.save` does."""
    torch, inner = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for module, name in ((torch, "LongStorage"), (inner, "_rebuild_tensor_v2")):
        made = type(name, (), {"__module__": module.__name__})
        setattr(module, name, made)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", inner)
    tensors: list[_Tensor] = []

    def tensor(numbers: list[int]) -> _Tensor:
        tensors.append(_Tensor(numbers, len(tensors)))
        return tensors[-1]

    lists: dict[str, list[Any]] = {"src_list": [], "dst_list": [], "x_n_list": [], "y_list": []}
    for sources, targets, kinds, runtime in graphs:
        for key, numbers in (("src_list", sources), ("dst_list", targets), ("x_n_list", kinds)):
            lists[key].append(tensor(numbers))
        lists["y_list"].append(runtime)
    content = io.BytesIO()
    _Pickler(content, protocol=2).dump(lists)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content.getvalue())
        for each in tensors:
            archive.writestr(f"archive/data/{each.place}", each.numbers.tobytes())


def chains(count: int) -> list[tuple[list[int], list[int], list[int], float]]:
    """Chains of ops 1 and 2 in turn, which run as long as they are."""
    found = []
    for number in range(count):
        length = 3 + number % 20
        row = list(range(length))
        found.append((row[:-1], row[1:], [1 + place % 2 for place in row], float(length)))
    return found


def test_graphs_are_read_with_their_runtimes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "val.pth", [([0, 0, 1], [1, 2, 2], [18, 45, 29], 2.5)], monkeypatch)
    (found,) = read_tpu_tile(tmp_path / "val.pth")
    assert found.runtime == 2.5
    assert [(node.kind, node.parents) for node in found.graph.nodes] == [
        ("op 18", ()), ("op 45", (0,)), ("op 29", (0, 1))
    ]  # fmt: skip


def test_the_model_is_judged_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain's length is its runtime: what is grown for a runtime has that length, and a surrogate learns it."""
    saved(tmp_path / "val.pth", chains(60), monkeypatch)
    saved(tmp_path / "test.pth", chains(25), monkeypatch)
    found = evaluate_tiles(tmp_path, graphs=40, seed=1)
    assert (found.valid, found.held_out) == (40, 25)
    assert found.surrogates["generated"].spearman > 0.9
    assert found.distances["generated"]["in-degree"] < 0.1
    assert "bytes" not in found.distances["real"]


def test_what_is_no_such_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "val.pth"
    with pytest.raises(InputError, match="cannot be read as graphs"):
        read_tpu_tile(path)
    path.write_bytes(b"no zip")
    with pytest.raises(InputError, match="not a zip"):
        read_tpu_tile(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Path("x")))
    with pytest.raises(InputError, match="which no graph needs"):
        read_tpu_tile(path)
    saved(path, [([1], [0], [1, 2], 1.0)], monkeypatch)
    with pytest.raises(InputError, match="not before it"):
        read_tpu_tile(path)
