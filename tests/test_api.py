"""The public names: each is what it says, at first and at every later use, and importing them is cheap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshcast

ADD = """
func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.add %x, %x : tensor<64xf32>
  return %0 : tensor<64xf32>
}"""


@pytest.mark.parametrize("name", [name for name in meshcast.__all__ if name != "__version__"])
def test_every_name_stays_what_it_is(name: str, tmp_path: Path) -> None:
    before = getattr(meshcast, name)
    (tmp_path / "add.mlir").write_text(ADD)
    meshcast.predict(tmp_path / "add.mlir", on="h200")
    assert getattr(meshcast, name) is before
    assert callable(before)


def test_the_stages_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "add.mlir").write_text(ADD)
    program = meshcast.load(tmp_path / "add.mlir")
    workload = meshcast.read_workload(meshcast.partition_program(program))
    assert meshcast.lower_workload(workload).kernel_count == 1
    run = meshcast.prepare(program, meshcast.Options(on="h200"))
    assert run.predict().step_time_s == run.timeline.duration


def test_every_object_prints_in_a_terminal_and_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "add.mlir").write_text(ADD)
    program = meshcast.load(tmp_path / "add.mlir")
    run = meshcast.prepare(program, meshcast.Options(on="h200"))
    shown = [program, run.workload, run.lowered, run, run.timeline, run.memory, run.device, run.cluster, run.predict()]
    for thing in shown:
        text = str(thing)
        assert "\n" in text
        assert not text.startswith(type(thing).__name__ + "(")
        assert "<t" in thing._repr_html_()  # type: ignore[attr-defined]


def test_importing_meshcast_does_not_import_jaxlib() -> None:
    code = "import meshcast, sys; assert not any(name.split('.')[0] in ('jax', 'jaxlib') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulatee'"):
        meshcast.simulatee  # type: ignore[attr-defined]  # noqa: B018


def test_completion_knows_the_public_names() -> None:
    assert len(dir(meshcast)) == len(set(dir(meshcast)))
    shown = [name for name in dir(meshcast) if not name.startswith("_")]
    assert shown == sorted(set(meshcast.__all__) - {"__version__"})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("devices", "8"), ("devices", 2.0), ("mesh", 3), ("mesh", {"data": "8"}), ("plan", 5), ("on", None), ("fidelity", 7),
        ("settings", 5), ("settings", {1: 2}), ("settings", {"batch": object()}), ("dims", {"B": "x"}), ("beside", "x"),
        ("on", "a\0b"), ("profile", "a\0b"), ("placement", "a\0b"), ("stack", 5), ("stack", "a\0b"),
        ("channels", True), ("network", None), ("trip_counts", 7), ("profile", 3), ("conditions", None),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_named(option: str, value: Any) -> None:
    with pytest.raises(meshcast.MeshcastError, match=option) as caught:
        meshcast.predict("gpt2-tiny", **{option: value})
    assert caught.value.exit_code == 2
    assert caught.value.where == option


def test_values_with_one_meaning_are_taken() -> None:
    options = meshcast.Options(
        settings={"batch": 64, "layers": [3, 4], "bias": True, "seed": None},
        mesh="data=8,model=4",
        on=Path("own.toml"),
        beside=["all_reduce:1MiB:0-7"],
    )
    assert options.program.settings == {"batch": "64", "layers": "3,4", "bias": "True", "seed": "None"}
    assert options.program.mesh == {"data": 8, "model": 4}
    assert options.on == "own.toml"
    assert [each.text for each in options.network.beside] == ["all_reduce:1MiB:0-7"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"on": 5}, {"on": "a\0b"}, {"on": ["h200", "a\0b"]}, {"fidelities": 7}, {"fidelities": [3]}, {"folder": 5},
        {"folder": "a\0b"}, {"options": 5}, {"told": None}, {"told": 3}, {"stack": 5},
    ],
)  # fmt: skip
def test_comparisons_name_what_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(meshcast.MeshcastError, match=next(iter(wrong))):
        meshcast.compare("gpt2-tiny", **{"on": "h200", **wrong})
    with pytest.raises(meshcast.MeshcastError, match="targets"):
        meshcast.compare(5, on="h200")  # type: ignore[arg-type]
    with pytest.raises(meshcast.MeshcastError, match="targets"):
        meshcast.compare([1], on="h200", fidelities="roofline")  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: meshcast.load("gpt2-tiny", 1.5), "options"),  # type: ignore[arg-type]
        (lambda: meshcast.load("gpt2-tiny", {"batch": 64}), "options"),  # type: ignore[arg-type]
        (lambda: meshcast.load("gpt2-tiny", np.arange(3)), "options"),  # type: ignore[arg-type]
        (lambda: meshcast.load("a\0b"), "target"),
        (lambda: meshcast.predict("a\0b"), "target"),
        (lambda: meshcast.read_workload("gpt2-tiny"), "program"),  # type: ignore[arg-type]
        (lambda: meshcast.partition_program(5), "program"),  # type: ignore[arg-type]
        (lambda: meshcast.lower_workload(None), "workload"),  # type: ignore[arg-type]
        (lambda: meshcast.compare_measured(1.5, 1.5), "target"),  # type: ignore[arg-type]
        (lambda: meshcast.compare_measured("gpt2-tiny", 1.5), "measured"),  # type: ignore[arg-type]
        (lambda: meshcast.compare_measured("gpt2-tiny", ["a\0b"]), "measured"),
    ],
)
def test_stages_name_the_argument_that_is_of_another_kind(call: Callable[[], object], where: str) -> None:
    with pytest.raises(meshcast.MeshcastError) as caught:
        call()
    assert caught.value.exit_code == 2
    assert caught.value.where == where
