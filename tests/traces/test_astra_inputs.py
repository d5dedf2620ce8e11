"""What ASTRA-sim is told beside traces: files for the hardware of the prediction, and ASTRA-sim's answer with them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from meshcast.hardware import resolve
from meshcast.hardware.astra import cluster_network, read_network
from meshcast.network.astra import astra_available, read_remote_memory, read_system
from meshcast.options.options import Options
from meshcast.traces.astra_inputs import astra_inputs
from meshcast.traces.formats import write_trace
from meshcast.traces.request import TraceRequest, Written


def written(out: Path, plan: str, on: str = "dgx-h100", **more: object) -> Written:
    options = Options(
        on=on, plan=plan, settings={"batch": "16", "seq": "64"}, network="astra", channels=1, contention="off", host="off"
    )  # fmt: skip
    return write_trace("chakra", TraceRequest(target="llama3-tiny", options=options, out=out, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("on", "plan", "ranks"),
    [("dgx-h100", "tp=2,dp=8", 16), ("tpu-v5p-pod", "fsdp=8", 8), ("gb200-nvl72", "pp=2,dp=2", 4)],
)
def test_files_say_what_the_prediction_was_made_with(tmp_path: Path, on: str, plan: str, ranks: int) -> None:
    out = tmp_path / "job"
    made = written(out, plan, on)
    folder = tmp_path / "job.astra"
    network = cluster_network(resolve(on), ranks)
    assert read_network(folder / "network.yml") == network
    system = read_system(folder / "system.json")
    assert len(system.all_reduce) == len(network.dimensions)
    assert system.others["roofline-enabled"] == 0
    assert system.others["peak-perf"] == pytest.approx(resolve(on).device.matrix_peak("bf16") / 1e12)
    assert read_remote_memory(folder / "remote_memory.json").kind == "NO_MEMORY_EXPANSION"
    flags = next(line for line in made.lines if line.startswith("ASTRA-sim takes ")).removeprefix("ASTRA-sim takes ")
    assert flags.split() == [f"--{flag}={path}" for flag, path in made.summary["astra_sim"].items()]
    program = astra_available().get("Unaware")
    if program is not None:
        ended = subprocess.run([program, *flags.split()], capture_output=True, text=True, check=True, cwd=tmp_path)
        finished = [int(cycles) for cycles in re.findall(r"finished, (\d+) cycles", ended.stdout)]
        assert len(finished) == ranks
        # Whole microseconds: kernels here take two or three.
        assert max(finished) * 1e-9 == pytest.approx(made.summary["makespan_s"], rel=0.02)


def test_files_of_an_earlier_export_go(tmp_path: Path) -> None:
    out = tmp_path / "job"
    written(out, "dp=4")
    assert (tmp_path / "job.astra").is_dir()
    assert written(out, "dp=4", ranks="0").summary["astra_sim"] is None
    assert not (tmp_path / "job.astra").exists()


def test_networks_that_astra_sim_has_not() -> None:
    inputs, said = astra_inputs(resolve("dgx-h100"), 12)
    assert not inputs
    assert "products of dimensions" in said[0]
    inputs, said = astra_inputs(resolve("dgx-h100"), 1)
    assert not inputs
    assert "no network" in said[0]


def test_a_device_without_tensor_cores_has_the_peak_of_its_plain_cores() -> None:
    files, _ = astra_inputs(resolve("dgx-1-p100"), 8)
    assert any('"peak-perf": 21.2' in text for _, text in files.values())
