"""The public names: each is what it says, at first and at every later use, and importing them is cheap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
        meshcast.simulatee  # noqa: B018
