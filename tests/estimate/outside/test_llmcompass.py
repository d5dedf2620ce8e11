"""LLMCompass as an outside simulator: how a GPU is told, what is asked, and what is said where it is not there."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.base import cache_folder
from meshcast.base.errors import UnsupportedError
from meshcast.estimate import load_simulator
from meshcast.estimate.outside import llmcompass
from meshcast.estimate.outside.llmcompass import FOLDER, PYTHON, LlmCompass, description
from meshcast.hardware import load_device
from meshcast.workload import Gemm
from tests.estimate.conformance import gemm, pass_over

H200, A100 = load_device("h200"), load_device("a100-sxm-80gb")
# A stand-in with LLMCompass's names: a product takes its multiply-adds over those of all cells, and a line for every question.
COMPUTE = """
class VectorUnit:
    def __init__(self, *told): pass
class SystolicArray:
    def __init__(self, height, width, macs, *told): self.rate = height * width * macs
class Core:
    def __init__(self, vectors, arrays, count, size): self.rate = arrays.rate * count
class ComputeModule:
    def __init__(self, core, count, clock, *told): self.rate = core.rate * count * clock
overhead_dict = {"A100": None}
"""
MATMUL = """
class Matmul:
    def __init__(self, data_type): pass
    def __call__(self, left, right): self.sides = (*left.shape, right.shape[-1])
    def compile_and_simulate(self, device, mode):
        assert mode == "heuristic-GPU"
        with open("asked.txt", "a") as file: file.write(f"{self.sides}\\n")
        found = 1
        for side in self.sides: found *= side
        return found / device.compute_module.rate
class BatchedMatmul(Matmul):
    pass
"""
MODULES = {
    "hardware_model/compute_module.py": COMPUTE,
    "hardware_model/device.py": "class Device:\n    def __init__(self, compute, *told): self.compute_module = compute\n",
    "hardware_model/io_module.py": "class IOModule:\n    def __init__(self, *told): pass\n",
    "hardware_model/memory_module.py": "class MemoryModule:\n    def __init__(self, *told): pass\n",
    "software_model/matmul.py": MATMUL,
    "software_model/utils.py": (
        "class Tensor:\n    def __init__(self, shape, data_type): self.shape = shape\ndata_type_dict = {'fp16': None}\n"
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like LLMCompass's, and a cache of its own."""
    place = tmp_path / "compass"
    for name, text in MODULES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.setenv(FOLDER, str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return place


def test_a_gpu_is_told_by_its_own_rates() -> None:
    """An A100's SM multiplies 1024 pairs a clock, four arrays of 16 x 16; an H200's twice as many."""
    assert description(A100)["multiply_adds"] == 1
    assert description(H200)["multiply_adds"] == 2
    assert description(A100)["cores"] == 108


def test_products_are_asked_once_and_kept(folder: Path) -> None:
    simulator = load_simulator("llmcompass", H200)
    product = gemm(4096, 4096, 4096)
    seconds = simulator.estimate([product, product], H200).time
    rate = 2 * 1024 * 132 * H200.peak_clock_hz
    assert seconds[0] == seconds[1] == pytest.approx(4096**3 / rate + H200.launch_latency_s, rel=0.05)
    simulator.estimate([product], H200)
    assert (folder / "asked.txt").read_text().splitlines() == ["(4096, 4096, 4096)"]
    batched = gemm(512, 512, 64, batch=8)
    simulator.estimate([batched], H200)
    assert (folder / "asked.txt").read_text().splitlines()[-1].startswith("(8, 512, ")
    assert isinstance(simulator, LlmCompass)
    assert "LLMCompass" in simulator.explain(product, H200).model


def test_another_version_of_it_is_asked_again(folder: Path) -> None:
    """Whichever of its files has changed: that of its cores is not the one that has its products."""
    LlmCompass().estimate([gemm(64, 64, 64)], H200)
    slower = COMPUTE.replace("arrays.rate * count", "arrays.rate * count / 2")
    (folder / "hardware_model/compute_module.py").write_text(slower)
    LlmCompass().estimate([gemm(64, 64, 64)], H200)
    assert (folder / "asked.txt").read_text().splitlines() == ["(64, 64, 64)"] * 2


def test_what_is_no_product_is_left_to_others() -> None:
    assert "products alone" in LlmCompass().supports(pass_over(8, 8), H200).reason


def test_where_it_is_not_there_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(FOLDER, raising=False)
    with pytest.raises(UnsupportedError, match=f"{FOLDER} is not set"):
        LlmCompass().estimate([gemm(64, 64, 64)], H200)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(UnsupportedError, match=r"has no software_model/matmul\.py"):
        LlmCompass().estimate([gemm(64, 64, 64)], H200)


def test_its_failure_is_told_with_its_last_words(folder: Path) -> None:
    (folder / "software_model/matmul.py").write_text("raise RuntimeError('no table')\n")
    with pytest.raises(UnsupportedError, match="64x64x64: RuntimeError: no table"):
        LlmCompass().estimate([gemm(64, 64, 64)], H200)


def test_it_simulates_no_tpus() -> None:
    with pytest.raises(UnsupportedError, match="simulates GPUs, and tpu-v6e is none"):
        load_simulator("llmcompass", load_device("tpu-v6e"))


def test_both_operands_have_two_bytes() -> None:
    product = gemm(64, 64, 64)
    assert isinstance(product.geometry, Gemm)
    assert LlmCompass().supports(product, H200).level != "no"
    for geometry in (replace(product.geometry, lhs_dtype="i8"), replace(product.geometry, rhs_dtype="i8")):
        mixed = replace(product, geometry=geometry)
        assert "two bytes" in LlmCompass().supports(mixed, H200).reason


@pytest.mark.parametrize("answer", ["nan", "inf", "-1.0"])
def test_what_is_no_time_is_refused_and_not_kept(folder: Path, answer: str) -> None:
    matmul = folder / "software_model/matmul.py"
    matmul.write_text(MATMUL.replace("return found / device.compute_module.rate", f"return float('{answer}')"))
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=f"64x64x64: {answer} is no number of seconds"):
            LlmCompass().estimate([gemm(64, 64, 64)], H200)


def test_a_kept_answer_that_is_no_time_is_asked_again(folder: Path) -> None:
    LlmCompass().estimate([gemm(64, 64, 64)], H200)
    (kept,) = cache_folder("llmcompass").glob("*.json")
    kept.write_text("NaN")
    assert LlmCompass().estimate([gemm(64, 64, 64)], H200).time[0] > 0
    assert len((folder / "asked.txt").read_text().splitlines()) == 2


def test_it_is_not_waited_for_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "software_model/matmul.py").write_text("import time\ntime.sleep(20)\nraise RuntimeError('too late')\n")
    monkeypatch.setattr(llmcompass, "LONGEST_S", 0.5, raising=False)
    with pytest.raises(UnsupportedError, match=r"64x64x64: none within 0\.5 s"):
        LlmCompass().estimate([gemm(64, 64, 64)], H200)


def test_its_python_is_looked_up_from_here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path from the current folder, and not from LLMCompass's, which it runs in."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    os.chmod(tmp_path / "bin" / "python", 0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PYTHON, "bin/python")
    assert LlmCompass().estimate([gemm(64, 64, 64)], H200).time[0] > 0
