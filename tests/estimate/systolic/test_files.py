"""SCALE-Sim's topologies and configurations: read, written, and their mistakes by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast.base.errors import InputError, UnsupportedError
from meshcast.estimate.systolic import ArrayBuffer, Layer, SystolicArray
from meshcast.estimate.systolic.files import config_text, read_config, read_layers, topology_text

ARRAY = SystolicArray(
    rows=8, columns=4, dataflow="is", ifmap=ArrayBuffer(words=2048, bandwidth=5), filter=ArrayBuffer(words=1024, bandwidth=7),
    ofmap=ArrayBuffer(words=4096, bandwidth=3),
)  # fmt: skip


def written(folder: Path, text: str) -> Path:
    path = folder / "file"
    path.write_text(text)
    return path


def test_products_and_convolutions_with_and_without_a_comma_at_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, "Layer, M, N, K,\nfirst, 3, 4, 5,\n\nsecond,3,4,5\nsparse,3,4,5,2:4,\nc,8,9,3,2,4,6,2,\n")
    layers = read_layers(path)
    assert [layer.name for layer in layers] == ["first", "second", "sparse", "c"]
    assert all((layer.m, layer.n, layer.k) == (3, 4, 5) for layer in layers[:3])
    assert layers[3] == Layer(
        name="c", ifmap_height=8, ifmap_width=9, filter_height=3, filter_width=2, channels=4, filters=6, stride=2
    )


def test_a_depthwise_layer_is_one_layer_a_channel(tmp_path: Path) -> None:
    layers = read_layers(written(tmp_path, "header\nDP1, 8, 8, 3, 3, 5, 1, 1,\n"))
    assert [layer.name for layer in layers] == [f"DP1Channel_{i}" for i in range(5)]
    assert {layer.channels for layer in layers} == {1}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a, 1, 2, 3,\n", ":1", "header"),
        ("h\na, 1, 2,\n", ":2", "not a layer"),
        ("h\na, 1, 2, x,\n", ":2", "not a layer"),
        ("h\na, 1, 2, 3,\nb, 1, 0, 3,\n", ":3", "below 1"),
        ("h\na, 3, 3, 4, 1, 1, 1, 1,\n", ":2", "larger than the map"),
        ("h\n", "", "no layers"),
    ],
)
def test_mistakes_in_a_topology_have_their_line(tmp_path: Path, text: str, line: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        read_layers(path)
    assert caught.value.where == f"{path}{line}"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, config_text(ARRAY))) == ARRAY
    layers = [Layer.gemm(3, 4, 5), Layer(ifmap_height=9, ifmap_width=7, filter_height=3, filter_width=2, channels=3,
                                         filters=2, stride=2)]  # fmt: skip
    read = read_layers(written(tmp_path, topology_text(layers)))
    assert [(layer.m, layer.n, layer.k) for layer in read] == [(layer.m, layer.n, layer.k) for layer in layers]


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("ArrayHeight: 8", "ArrayHeight: eight", InputError, "not a positive whole number"),
        ("ArrayHeight: 8\n", "", InputError, "ArrayHeight is missing"),
        ("Dataflow: is", "Dataflow: rs", InputError, "one of ws, os, is"),
        ("IfmapSRAMBankNum: 1", "IfmapSRAMBankNum: 2", InputError, "not divisible by 2 banks"),
        ("SparsitySupport: false", "SparsitySupport: true", UnsupportedError, "SparsitySupport is not modelled"),
        ("IfmapCustomLayout: False", "IfmapCustomLayout: True", UnsupportedError, "IfmapCustomLayout"),
        ("[general]", "general]", InputError, "not a SCALE-Sim configuration"),
    ],
)
def test_mistakes_in_a_configuration(
    tmp_path: Path, old: str, new: str, error: type[Exception], message: str
) -> None:  # fmt: skip
    text = config_text(ARRAY)
    assert old in text
    path = written(tmp_path, text.replace(old, new))
    with pytest.raises(error) as caught:
        read_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    if new and "general" not in new:
        assert f"{path}:{1 + text[: text.index(old)].count(chr(10))}" in str(caught.value) or "Bank" in new
