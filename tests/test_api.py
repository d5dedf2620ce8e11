"""The public names: each is what it says, at first and at every later use, and importing them is cheap."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import meshcast
from meshcast.hardware import resolve
from meshcast.lower import lower
from meshcast.options import option_places
from meshcast.partition import partition
from meshcast.workload import read_workload
from tests.documentation.pages import ROOT, blocks

API = ROOT / "docs" / "api.md"
ADD = """
func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.add %x, %x : tensor<64xf32>
  return %0 : tensor<64xf32>
}"""


def _added() -> meshcast.Program:
    return meshcast.load(ADD.encode())


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
    workload = program.partition().workload()
    lowered = workload.lower()
    assert lowered.kernel_count == 1
    run = lowered.on("h200")
    assert run.predict().step_time_s == run.timeline.duration
    for same in (program.on("h200"), meshcast.prepare(program, meshcast.Options(on="h200"))):
        assert same.predict().step_time_s == run.timeline.duration


def test_modelled_kernels_are_not_told_as_a_compilers() -> None:
    lowered = _added().workload().lower()
    with pytest.raises(meshcast.MeshcastError, match="the kernels are modelled") as caught:
        lowered.on("h200", fidelity="compiled")
    assert (caught.value.exit_code, caught.value.where) == (2, "fidelity")
    assert lowered.on("h200", fidelity="roofline").predict().fidelity == "roofline"


def test_stages_refuse_what_an_earlier_one_decides(tmp_path: Path) -> None:
    (tmp_path / "add.mlir").write_text(ADD)
    program = meshcast.load(tmp_path / "add.mlir")
    lowered = program.partition().workload().lower()
    with pytest.raises(meshcast.MeshcastError, match="lowered already") as caught:
        lowered.on("h200", mesh={"data": 8})
    assert (caught.value.exit_code, caught.value.where) == (2, "mesh")
    with pytest.raises(meshcast.MeshcastError, match="the kernels are those of xla-gpu"):
        lowered.on("tpu-v5p")
    assert program.partition().workload().lower(backend="xla-tpu").on("tpu-v5p").predict().feasible
    assert lowered.on(
        "h200", overlap="prefetch"
    ).lowered.idle  # rewrites are still made, where there is something to do
    with pytest.raises(meshcast.MeshcastError, match="no setting 'fidelty'"):
        program.on("h200", fidelty="roofline")  # type: ignore[call-arg]


def test_a_sharded_program_is_read_once_it_is_partitioned() -> None:
    mesh = AbstractMesh((4,), ("data",), axis_types=(AxisType.Auto,))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec("data")))
    program = meshcast.capture(lambda x: x.sum(), x, name="sum")
    with pytest.raises(meshcast.MeshcastError, match="sharded over 4 devices") as caught:
        program.workload()
    assert caught.value.exit_code == 2
    assert [collective.kind for collective, _ in program.partition().workload().collectives()] == ["all_reduce"]
    assert program.partition(mesh={"data": 2}).devices == 2


def test_hardware_plans_and_stacks_are_taken_as_objects(tmp_path: Path) -> None:
    (tmp_path / "add.mlir").write_text(ADD.replace("64xf32", f"{2**28}xf32"))  # more than caches hold
    device, stack = meshcast.Device.load("h200"), meshcast.Stack.load("megatron")
    assert meshcast.Options(on=device).on == resolve("h200")
    assert meshcast.Options(on=meshcast.Cluster.load("dgx-h100")).on == resolve("dgx-h100")
    assert meshcast.Options(plan=meshcast.Plan(fsdp=2)).program == meshcast.Options(plan="fsdp=2").program
    slower = replace(device, memory_bandwidth=device.memory_bandwidth / 2)
    asked: list[dict[str, Any]] = [
        {"on": "h200", "stack": "megatron"}, {"on": device, "stack": stack}, {"on": slower, "fidelity": "roofline"},
        {"on": device, "fidelity": "roofline"},
    ]  # fmt: skip
    named, given, slow, fast = (meshcast.predict(tmp_path / "add.mlir", **each).step_time_s for each in asked)
    assert given == named
    assert slow == pytest.approx(2 * fast)  # type: ignore[operator]


def test_a_step_that_does_not_fit_is_matched_as_infeasible(tmp_path: Path) -> None:
    (tmp_path / "add.mlir").write_text(ADD.replace("64xf32", f"{2**36}xf32"))
    match meshcast.predict(tmp_path / "add.mlir", on="h200"):
        case meshcast.Prediction(step_time_s=None, timeline=None, infeasible=meshcast.Infeasible() as verdict):
            assert verdict.resource == "memory_bytes"
            assert verdict.gap == verdict.demand - verdict.bound > 0
        case fits:
            pytest.fail(f"{fits} fits")


def test_traces_are_written_from_python(tmp_path: Path) -> None:
    (tmp_path / "add.mlir").write_text(ADD)
    written = meshcast.trace(tmp_path / "add.mlir", tmp_path / "add.json", format="kineto", on="h200")
    assert written.summary["files"] == [str(tmp_path / "add.json")]
    assert str(tmp_path / "add.json") in str(written)
    times = [event.get("dur", 0) for event in json.loads((tmp_path / "add.json").read_text())["traceEvents"]]
    assert max(times) > 0
    for wrong, where in (({"format": "vcd"}, "--format"), ({"format": "kineto", "dedup": True}, "--dedup")):
        with pytest.raises(meshcast.MeshcastError) as caught:
            meshcast.trace(tmp_path / "add.mlir", tmp_path / "x.json", **wrong)
        assert (caught.value.exit_code, caught.value.where) == (2, where)


def test_load_takes_what_a_target_cannot_say_by_name() -> None:
    program = meshcast.load("gpt2-tiny", settings={"batch": 2, "layers": 1}, platform="tpu")
    assert "2x128" in program.text
    with pytest.raises(meshcast.MeshcastError, match="no option 'batch'"):
        meshcast.load("gpt2-tiny", batch=2)
    with pytest.raises(meshcast.MeshcastError, match="settings is a dict"):
        meshcast.load("gpt2-tiny", settings=5)


def test_a_mesh_is_taken_as_text_object_and_dict() -> None:
    settings = {"batch": 4, "layers": 1}
    mesh = meshcast.Mesh.parse("data=2")
    texts = {meshcast.load("gpt2-tiny", settings=settings, mesh=each).text for each in (mesh, "data=2", {"data": 2})}
    assert len(texts) == 1
    program = meshcast.load("gpt2-tiny", settings=settings, mesh=mesh)
    wider = [program.partition(mesh=each).mesh for each in (meshcast.Mesh.parse("data=4"), "data=4", {"data": 4})]
    assert wider == [meshcast.Mesh.parse("data=4")] * 3


def test_the_page_has_an_example_of_every_public_name() -> None:
    code = "\n".join(block.text for block in blocks(API) if block.language == "python")
    missing = [name for name in meshcast.__all__ if not re.search(rf"\bmeshcast\.{name}\b", code)]
    assert missing == ["__version__"]


def test_the_page_names_every_setting_that_is_not_called_as_its_flag() -> None:
    page = API.read_text()
    for name, place in option_places().items():
        flags = [each.flag for each in place.field.declaration.flags]
        if flags != ["--" + name.replace("_", "-")]:
            assert all(f"`{word}`" in page for word in (name, *flags)), name
    assert resolve("dgx-h100") == meshcast.Options(on=meshcast.Cluster.load("dgx-h100")).on


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
        (lambda: read_workload("gpt2-tiny"), "program"),  # type: ignore[arg-type]
        (lambda: partition(5), "program"),  # type: ignore[arg-type]
        (lambda: lower(None), "workload"),  # type: ignore[arg-type]
        (lambda: lower(_added().workload(), fusion="zzz"), "fusion"),  # type: ignore[arg-type]
        (lambda: meshcast.predict(_added(), on="h200", fusion="zzz"), "fusion"),  # type: ignore[arg-type]
        (lambda: meshcast.load("gpt2-tiny", mesh=3), "mesh"),
        (lambda: meshcast.load("gpt2-tiny", dims=3), "dims"),
        (lambda: _added().workload(trip_counts=3), "trip_counts"),  # type: ignore[arg-type]
        (lambda: _added().workload(trip_counts={"*": "3"}), "trip_counts"),  # type: ignore[dict-item]
        (lambda: _added().partition(mesh=3), "mesh"),  # type: ignore[arg-type]
        (lambda: meshcast.Plan.parse(3), "plan"),  # type: ignore[arg-type]
        (lambda: meshcast.Mesh.parse(3), "mesh"),  # type: ignore[arg-type]
        (lambda: meshcast.pipeline_of(3, microbatches=1), "parts"),  # type: ignore[arg-type]
        (lambda: meshcast.pipeline_of([3], microbatches=1), "parts"),  # type: ignore[list-item]
        (lambda: meshcast.pipeline_of([], microbatches=1, mesh=3), "mesh"),  # type: ignore[arg-type]
        (lambda: meshcast.Options(foo=1), "Options"),
        (lambda: meshcast.register_custom_call(3, 3), "target_name"),  # type: ignore[arg-type]
        (lambda: meshcast.register_custom_call("mine", 3), "rule"),  # type: ignore[arg-type]
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


def test_threads_of_numpys_blas_sleep_when_they_have_nothing_to_do() -> None:
    """They looked for work for milliseconds behind every product; what a user has set stays."""
    assert os.environ["OPENBLAS_THREAD_TIMEOUT"]
