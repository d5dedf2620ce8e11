from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshcast.base import how_to_install
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.cli import doctor
from meshcast.cli.app import app
from meshcast.network.astra.program_files import HOW_TO_GET_ASTRA_SIM

# Four times: a product over a sharded contracting dimension, and a tanh.
PROGRAM = """
module @looped attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(
      %a: tensor<64x64xbf16>
        {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>, tf.aliasing_output = 0 : i32} loc("params"),
      %b: tensor<64x64xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>} loc("batch"))
      -> (tensor<64x64xbf16> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %four = stablehlo.constant dense<4> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<64x64xbf16>
      cond {
        %go = stablehlo.compare LT, %i, %four : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %go : tensor<i1>
      } do {
        %y = stablehlo.dot_general %x, %b, contracting_dims = [1] x [0]
          : (tensor<64x64xbf16>, tensor<64x64xbf16>) -> tensor<64x64xbf16>
        %t = stablehlo.tanh %y : tensor<64x64xbf16>
        %n = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %n, %t : tensor<i32>, tensor<64x64xbf16>
      }
    return %r#1 : tensor<64x64xbf16>
  }
}
"""
PRODUCT_FLOPS = 2 * 64 * 32 * 64  # one device contracts half


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "looped.mlir"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def invoke(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.stdout


def invoke_json(*arguments: str) -> dict[str, Any]:
    answer = json.loads(invoke(*arguments, "--json"))
    assert isinstance(answer, dict)
    return answer


def test_show_json(program: str) -> None:
    shown = invoke_json("show", program)
    assert shown["schema"] == "meshcast.workload/1"
    assert (shown["name"], shown["devices"], shown["mesh"]) == ("looped", 2, {"x": 2})
    assert len(shown["sha256"]) == len(shown["content_hash"]) == 64
    assert [(loop["label"], loop["trip_count"]) for loop in shown["loops"]] == [("while#1", 4)]
    assert shown["totals"]["matrix_flops"] == {"bf16": 4 * PRODUCT_FLOPS}
    products = [op for op in shown["ops"] if op["kind"] == "gemm"]
    assert [(op["count"], op["dtype"], op["flops"]) for op in products] == [(4, "bf16", 4 * PRODUCT_FLOPS)]


def test_show_json_adds_up(program: str) -> None:
    shown = invoke_json("show", program)
    totals = shown["totals"]
    assert sum(op["flops"] for op in shown["ops"]) == totals["flops"]
    assert sum(op["bytes"] for op in shown["ops"]) == totals["unfused_bytes"]
    assert shown["collectives"]
    for kind, sent in totals["collective_bytes"].items():
        assert sum(c["bytes"] for c in shown["collectives"] if c["kind"] == kind) == sent
    assert all(c["axes"] == ["x"] and c["group_size"] == 2 and c["count"] % 4 == 0 for c in shown["collectives"])


def test_show_json_arguments_are_as_one_device_holds_them(program: str) -> None:
    params, batch = invoke_json("show", program)["arguments"]
    assert params == {
        "name": "params",
        "role": "parameter",
        "donated": True,
        "aliased_output": 0,
        "shape": [64, 32],
        "dtype": "bf16",
        "bytes": 64 * 32 * 2,
    }
    assert (batch["role"], batch["donated"], batch["shape"]) == ("batch", False, [32, 64])


def test_show_kernels_json(program: str) -> None:
    shown = invoke_json("show", program, "--kernels", "--on", "h100-sxm")
    assert shown["schema"] == "meshcast.kernels/1"
    assert shown["on"] == {"device": "h100-sxm", "cluster": "dgx-h100"}
    assert sum(kernel["count"] for kernel in shown["kernels"]) == shown["launches"]
    (product,) = (kernel for kernel in shown["kernels"] if kernel["kind"] == "gemm")
    assert (product["count"], product["flops"]) == (4, PRODUCT_FLOPS)
    assert product["seconds"] > 0
    geometry = product["geometry"]
    assert (geometry["type"], geometry["m"], geometry["n"], geometry["k"]) == ("gemm", 64, 64, 32)
    collective = next(kernel for kernel in shown["kernels"] if kernel["kind"] == "collective")
    assert collective["limited_by"] == "latency"
    assert collective["geometry"]["group"]["axes"] == ["x"]


def test_show_for_people(program: str) -> None:
    text = invoke("show", program)
    for fragment in ("x=2", "dot_general", "while#1", "Collectives", "sent per device"):
        assert fragment in text
    assert "more" in invoke("show", program, "--limit", "1")


def test_show_kernels_for_people(program: str) -> None:
    text = invoke("show", program, "--kernels")
    assert "64x64x32 bf16" in text
    assert "fidelity analytical" in text


def test_predict_for_people(program: str) -> None:
    text = invoke("predict", program, "--on", "h100-sxm")
    assert text.startswith("looped on 2 x h100-sxm (dgx-h100), mesh x=2\n")
    assert "step time" in text


def test_devices_json() -> None:
    listed = invoke_json("devices")
    assert listed["schema"] == "meshcast.catalogue/1"
    devices = {device["name"]: device for device in listed["devices"]}
    clusters = {cluster["name"]: cluster for cluster in listed["clusters"]}
    assert devices["h200"]["memory_bandwidth"] == 4.8e12
    assert clusters[devices["h200"]["default_cluster"]]["levels"][0]["size"] == 8


def test_devices_for_people() -> None:
    text = invoke("devices")
    assert "h200" in text
    assert "dgx-h200" in text


def test_one_device_has_a_source_for_every_number() -> None:
    text = invoke("devices", "h200")
    for fragment in ("4.8 TB/s", "https://www.nvidia.com/en-us/data-center/h200/", "measured", "h200-sxm"):
        assert fragment in text
    entry = invoke_json("devices", "h200")
    assert (entry["schema"], entry["type"], entry["name"]) == ("meshcast.catalogue-entry/1", "device", "h200")
    bandwidth = entry["facts"]["memory.bandwidth"]
    assert (bandwidth["value"], bandwidth["text"]) == (4.8e12, "4.8 TB/s")
    assert bandwidth["source"]["title"].startswith("NVIDIA H200")
    assert all(fact["source"]["title"] or fact["note"] for fact in entry["facts"].values())


def test_one_cluster_and_a_file_of_ones_own(tmp_path: Path) -> None:
    assert invoke_json("devices", "dgx-h100")["type"] == "cluster"
    mine = tmp_path / "mine.toml"
    mine.write_text('schema = "meshcast.device/1"\nname = "mine"\nbase = "h200"\n[memory]\nbandwidth = "9 TB/s"\n')
    assert invoke_json("devices", str(mine))["facts"]["memory.bandwidth"]["source"]["key"] == "user"


def test_unknown_device_names_the_nearest() -> None:
    with pytest.raises(UnsupportedError, match="h2000") as caught:
        invoke("devices", "h2000")
    assert caught.value.fix == "did you mean 'h200'?"


def test_doctor_json() -> None:
    answer = invoke_json("doctor")
    assert answer["schema"] == "meshcast.doctor/1"
    assert answer["ok"] is True
    checks = {check["name"]: check for check in answer["checks"]}
    for name in (
        "python",
        "meshcast",
        "jax",
        "jaxlib",
        "shardy",
        "estimator roofline",
        "networks",
        "devices",
        "clusters",
    ):
        assert checks[name]["state"] == "ok", checks[name]
        assert checks[name]["fix"] is None
    assert {check["state"] for check in answer["checks"]} <= {"ok", "missing", "broken"}
    assert not checks["libtpu"]["core"]


@pytest.mark.parametrize("columns", [None, "60"])
def test_doctor_cuts_no_path(monkeypatch: pytest.MonkeyPatch, columns: str | None) -> None:
    """Neither in a pipe, which has no width, nor in a narrow terminal, where it goes on in the next line."""
    path = "/home/somebody/.cache/meshcast/environments/gpu-compiler-0.11.2-of-a-long-name/lib/python3.11/site-packages"
    found = [doctor.Check(name="gpu-compiler", state="ok", detail=f"0.11.2 at {path}", core=False)]
    monkeypatch.setattr(doctor, "all_checks", lambda: iter(found))
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    told = invoke("doctor")
    assert path in (told if columns is None else "".join(told.split()))
    assert "…" not in told


def test_doctor_says_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def aborts() -> str:
        raise RuntimeError("Shardy aborted")

    monkeypatch.setattr(doctor, "_partition", aborts)
    text = " ".join(invoke("doctor", exit_code=4).split())
    assert "RuntimeError: Shardy aborted" in text
    assert "pip install 'jax" in text


def test_doctor_names_the_smallest_extra_that_brings_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel lists the extra for tests before those that people ask for."""
    declared = [f"{name}>=1; extra == '{extra}'" for extra, names in {
        "test": ("pytest", "fastapi", "uvicorn", "matplotlib"), "plots": ("matplotlib",), "serve": ("fastapi", "uvicorn"),
    }.items() for name in names]  # fmt: skip
    monkeypatch.setattr("importlib.metadata.requires", lambda _: declared)
    monkeypatch.setattr(doctor, "_installed", lambda _: None)
    monkeypatch.setattr(doctor, "how_to_install", lambda extra: extra)
    fixes = {part.name: doctor._optional(part).fix for part in doctor.PARTS}
    assert (fixes["matplotlib"], fixes["fastapi"], fixes["uvicorn"], fixes["ray"]) == ("plots", "serve", "serve", None)


def test_doctor_wraps_sentences_and_keeps_commands_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command = "pip install " + " ".join(f"package-{n}" for n in range(12))
    checks = [
        doctor.Check(name=name, state="missing", detail="", core=False, fix=fix)
        for name, fix in (("astra-sim", HOW_TO_GET_ASTRA_SIM), ("others", command))
    ]
    doctor._print(checks, works=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == [f"    {command}"]


@pytest.mark.parametrize(
    ("version", "state"),
    [("0.10.2", "ok"), ("0.12.0.1", "ok"), ("0.10.1", "broken"), ("0.13.0", "broken"), (None, "missing")],
)
def test_doctor_knows_the_range_of_jax(monkeypatch: pytest.MonkeyPatch, version: str | None, state: str) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda _: version)
    jax = next(check for check in doctor.all_checks() if check.name == "jax")
    assert jax.state == state


def test_doctor_gives_the_install_line_of_a_declared_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "meshcast.cli.doctor.metadata.requires", lambda _: ["numpy>=2", 'jax[tpu]>=0.10; extra == "tpu"']
    )
    monkeypatch.setattr(doctor, "_installed", lambda _: None)
    checks = {part.name: doctor._optional(part) for part in doctor.PARTS}
    assert checks["libtpu"].fix == how_to_install("tpu")
    assert (checks["ray"].fix, checks["ray"].detail) == (None, "not used by this version")


def test_a_kernel_is_explained_by_its_row(program: str) -> None:
    kernels = invoke_json("show", program, "--on", "dgx-h100", "--kernels")["kernels"]
    for kernel in kernels:
        answer = invoke_json("show", program, "--on", "dgx-h100", "--kernels", "--explain", str(kernel["row"]))
        assert answer["schema"] == "meshcast.explanation/1"
        assert answer["seconds"] == kernel["seconds"]
        assert answer["limited_by"] == kernel["limited_by"]
        assert answer["formula"]
        assert {"name", "symbol", "value", "unit"} == set(answer["terms"][0])
    text = invoke("show", program, "--on", "dgx-h100", "--kernels", "--explain", "1")
    assert "Kernel 1:" in text
    assert "limited by" in text


def test_a_row_that_is_not_there_or_no_table_is_refused(program: str) -> None:
    result = CliRunner().invoke(app, ["show", program, "--kernels", "--explain", "99"])
    assert isinstance(result.exception, UsageError)
    assert "the table has" in str(result.exception)
    result = CliRunner().invoke(app, ["show", program, "--explain", "1"])
    assert isinstance(result.exception, UsageError)


def test_show_marks_loops_that_end_on_data() -> None:
    path = str(Path(__file__).parents[1] / "fixtures" / "unknown_loop.mlir")
    (loop,) = invoke_json("show", path)["loops"]
    assert (loop["trip_count"], loop["ends_on_data"], loop["turns_assumed"]) == (1, True, True)
    assert "1 assumed, ends on data" in invoke("show", path)
    assert "9 given, ends on data" in invoke("show", path, "--trip-count", "9")
