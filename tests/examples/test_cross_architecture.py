"""The cross-architecture example: every device answers for its files, and its page can be made again."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import meshcast
from meshcast.evidence.validate.runs.rows import RunRow
from meshcast.hardware import load_device
from meshcast.jobs import StatedRun
from meshcast.lower.compiled import compilation_cache as compilation

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "cross_architecture"
PROGRAMS = sorted((EXAMPLE / "programs").glob("*.mlir.gz"))
DEVICES = ("tpu-v5e", "tpu-v5p", "tpu-v6e", "h200", "h100-sxm", "a100-sxm-80gb", "b200")


def test_every_program_is_there() -> None:
    names = [path.name.removesuffix(".mlir.gz") for path in PROGRAMS]
    assert names == [
        "gemm-1-chip", "gemm-8-all-gather", "gemm-8-all-reduce", "gpt2-train-8", "llama3-8b-train-8", "resnet50-train-8",
    ]  # fmt: skip


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_every_program_is_answered_on_every_device(path: Path) -> None:
    found = meshcast.compare(path, on=DEVICES, fidelities="roofline")
    for cell in found.cells:
        assert cell.status in ("answered", "infeasible"), f"{cell.ask}: {cell.reason}"
        assert cell.prediction is not None
        assert cell.prediction["target"]["devices"] == (1 if "1-chip" in path.name else 8)
    fits_nowhere = [cell.ask.on for cell in found.cells if cell.status == "infeasible"]
    assert fits_nowhere == (["tpu-v5e"] if "llama3-8b" in path.name else [])


@pytest.mark.parametrize(("name", "kind"), [("all-reduce", "all_reduce"), ("all-gather", "all_gather")])
def test_the_products_take_the_collective_they_are_named_after(name: str, kind: str) -> None:
    prediction = meshcast.predict(EXAMPLE / "programs" / f"gemm-8-{name}.mlir.gz", on="h200", fidelity="roofline")
    assert [share.kind for share in prediction.collectives] == [kind]
    # 2 n^3 FLOPs over 8 chips.
    assert prediction.flops == pytest.approx(2 * 16384**3 / 8, rel=0.01)


def test_the_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has lowered the programs."""
    words = ["run.py", "--fidelity", "roofline", "--docs", str(tmp_path), "--folder", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    runpy.run_path(str(EXAMPLE / "run.py"), run_name="__main__")
    forget_modules()
    page = (tmp_path / "cross-architecture.md").read_text()
    assert "## What it shows" in page
    assert "`llama3-8b-train-8` does not run on tpu-v5e (roofline): needs" in page
    assert (tmp_path / "cross-architecture.svg").read_text().startswith("<svg")
    errors = page[page.index("## Beside published training steps") :]
    assert "| simulated | 29 |" in errors
    assert "| its blocks measured on the device: compute | 6 |" in errors  # the tool's own


def test_what_was_compiled_is_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    example = runpy.run_path(str(EXAMPLE / "run.py"))
    forget_modules()
    example["keep_compiled"]()
    names = [path.name.split(".") for path in (EXAMPLE / "compiled").glob("*.json.gz")]
    assert names
    published = {cell["target"] for cell in json.loads((EXAMPLE / "published.json").read_text())["cells"]["runs"]}
    for program, device, key, *_ in names:
        assert program in published or any(path.name.startswith(f"{program}.") for path in PROGRAMS)
        assert load_device(device).kind == "tpu"
        entry = compilation.read("xla-tpu", key)
        assert entry is not None
        assert "out_of_memory" in entry or entry["hlo"].startswith("HloModule")


def test_the_tools_own_predictions_stand_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of its predictions of one run, by hand: 60.59 and 111.68 ms of 90; ours would be 81, 90 and 99, two are missing."""
    published = the_published(monkeypatch)
    ours = {"hespas-001": {"roofline": 0.081, "analytical": 0.09, "simulated": 0.099}}
    page = published["beside_hespas"]({"hespas-001": "a Llama"}, {"hespas-001": 0.09}, ours)
    assert "| a Llama | 0.09 | its roofline, after XLA's passes | step | 0.0606 (-33%) | 0.081 (-10%) |" in page
    assert "| its blocks measured on the device: step | 1 | 24.1% | 11.1% | 0.0% | 10.0% | - | - |" in page
    assert "hespas-004" not in page  # nothing of ours to compare with


def test_every_cell_of_the_published_steps_has_a_time_or_a_reason() -> None:
    """Nine sides on eight devices, and six Llamas on five kinds of devices and five ResNets, in five fidelities each."""
    cells = json.loads((EXAMPLE / "published.json").read_text())["cells"]
    assert len(cells["products"]) == 9 * 8 * 5
    assert len(cells["runs"]) == (6 * 5 + 5) * 5
    for cell in (*cells["products"], *cells["runs"]):
        assert (cell["step_time_s"] is None) == bool(cell["reason"]), cell
        assert cell["status"] != "failed", cell
    compiled = [cell for cell in cells["runs"] if cell["fidelity"] == "compiled"]
    assert all(cell["own"] for cell in compiled if cell["step_time_s"] is not None)


def test_a_cell_without_a_time_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    published = the_published(monkeypatch)
    said = published["Said"]
    common = {"target": "r", "on": "4 h200", "fidelity": "profiled", "status": "answered", "interval_s": None}
    time = said(**common, step_time_s=0.11, own=True, reason="")
    assert published["_beside"](time, 0.1) == "0.11 (+10%)"
    assert published["_beside"](said(**common, step_time_s=0.11, own=False, reason=""), 0.1) == "0.11 (+10%) *"
    nothing = said(**common, step_time_s=None, own=True, reason="nothing was measured on x: there is nothing to ask")
    assert published["_beside"](nothing, 0.1) == "nothing was measured on x"


def test_a_run_on_tpu_v3_is_compiled_for_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four chips that split a model four ways are eight cores that split it eight ways, with half the sequences each."""
    published = the_published(monkeypatch)
    run = StatedRun(device="tpu-v3", devices=4, model="llama3-100m", devices_per_host=4, degrees={"fsdp": 4}, mbs=2)
    cores = published["by_cores"](RunRow(id="r", run=run, step_time_s=0.2)).run
    assert (cores.device, cores.devices, cores.devices_per_host, cores.degrees, cores.mbs) == (
        "tpu-v3-core", 8, 8, {"fsdp": 8}, 1,
    )  # fmt: skip
    other = RunRow(id="r", run=replace(run, device="h200"), step_time_s=0.2)
    assert published["by_cores"](other) is other


def the_published(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the example's script and of the module of its cells."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    script = runpy.run_path(str(EXAMPLE / "published.py"))
    cells = vars(sys.modules["published_cells"])
    forget_modules()
    return {**cells, **script}


def forget_modules() -> None:
    """The example's own, under names that others may have."""
    for name in ("programs", "kept", "published_cells"):
        sys.modules.pop(name, None)


def test_cells_of_devices_without_the_unit_are_marked_and_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A V100 has no unit for bf16: its cells stand in the page with a note, and count in no rank."""
    published = the_published(monkeypatch)
    cells = [
        published["noted"](
            published["Said"](
                target="32", on=on, fidelity=fidelity, status="answered", step_time_s=time, interval_s=None, own=True, reason="",
            )
        )
        for on, times in (("v100-sxm2-32gb", (1e-6, 9e-6)), ("h200", (1e-6, 2e-6)), ("a100-sxm-80gb", (2e-6, 4e-6)))
        for fidelity, time in zip(("analytical", "simulated"), times, strict=True)
    ]  # fmt: skip
    page = published["products_section"](cells)
    assert [bool(cell.note) for cell in cells] == [True, True, False, False, False, False]
    assert page.count("v100-sxm2-32gb has no unit for bf16") == 1
    assert "| analytical and simulated | 2 | 0.50 |" in page
    assert "nan" not in published["_summary"]([])
