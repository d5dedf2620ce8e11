"""Hardware with single numbers changed: as a file with a base would have it, refused where there is no such number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.errors import MeshcastError, UsageError
from meshcast.estimate.profiled.sources import measured_kernels
from meshcast.hardware import resolve

TWICE = """
schema = "meshcast.device/1"
name = "twice"
base = "h100-sxm"

[memory]
bandwidth = "6.7 TB/s"
"""


def test_a_changed_number_is_what_a_file_with_a_base_has(tmp_path: Path) -> None:
    (tmp_path / "twice.toml").write_text(TWICE)
    found, written = resolve("dgx-h100+memory.bandwidth=6.7TB/s"), resolve(tmp_path / "twice.toml")
    assert found.levels == written.levels
    assert found.device.name == "h100-sxm+memory.bandwidth=6.7TBps"
    assert replace(found.device, name="", title="", facts={}) == replace(written.device, name="", title="", facts={})
    assert resolve("h100-sxm+memory.bandwidth=6.7TB/s") == found


def test_several_numbers_of_device_and_levels(tmp_path: Path) -> None:
    base = resolve("dgx-h100")
    found = resolve("dgx-h100+matrix.bf16=2PFLOP/s+infiniband.link_bandwidth=100GB/s+nvlink.latency=1us")
    assert found.device.matrix_flops == {**base.device.matrix_flops, "bf16": 2e15}
    assert [level.link_bandwidth for level in found.levels] == [base.levels[0].link_bandwidth, 100e9]
    assert [level.latency_s for level in found.levels] == [1e-6, base.levels[1].latency_s]
    (tmp_path / "twice.toml").write_text(TWICE)
    again = resolve(f"{tmp_path}/twice.toml+memory.capacity=160GiB").device
    assert (again.memory_bandwidth, again.memory_bytes) == (6.7e12, 160 * 2**30)


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("h100-sxm+memory.bandwith=1TB/s", "memory.bandwidth"),
        ("h100-sxm+memory.bandwidth=fast", "memory.bandwidth"),
        ("h100-sxm+memory.bandwidth=0TB/s", "memory.bandwidth"),
        ("dgx-h100+nvlink.size=4", "nvlink.size"),
        ("dgx-h100+nvlink.link_bandwidth=0GB/s", "above 0"),
        ("dgx-h100+nvlink.link_bandwidth=1W", "nvlink.link_bandwidth"),
        ("h100-sxm+power.tdp=1W+power.tdp=2W", "twice"),
    ],
)
def test_what_cannot_be_changed_is_refused(on: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(on)
    assert said in str(error.value)


def test_a_name_with_a_plus_is_no_change() -> None:
    with pytest.raises(MeshcastError, match="no device or cluster"):
        resolve("h100+")


def test_measured_kernels_are_carried_over() -> None:
    assert measured_kernels(resolve("h200+memory.bandwidth=9.6TB/s").device) is measured_kernels(resolve("h200").device)
