"""Hardware with single numbers changed: as a file with a base would have it, refused where there is no such number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast.base.errors import MeshcastError, UsageError
from meshcast.estimate.profiled.sources import measured_kernels
from meshcast.hardware import catalogue, resolve
from meshcast.hardware.checked import DATA_SHEET, Checked
from meshcast.options.options import Options

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
        ("dgx-h100+nvlink.size=2000000", "nvlink.size"),
        ("dgx-h100+nvlnk.link_bandwidth=1GB/s", "did you mean 'nvlink.link_bandwidth'?"),
        ("dgx-h100+nvlink.link_bandwidth=0GB/s", "above 0"),
        ("dgx-h100+nvlink.link_bandwidth=1W", "nvlink.link_bandwidth"),
        ("h100-sxm+power.tdp=1W+power.tdp=2W", "twice"),
    ],
)
def test_what_cannot_be_changed_is_refused(on: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(on)
    assert said in str(error.value)


def test_what_is_said_of_a_level_goes_with_its_number() -> None:
    base, found = resolve("dgx-h100"), resolve("dgx-h100+infiniband.link_bandwidth=1GB/s")
    assert found.name == "dgx-h100+infiniband.link_bandwidth=1GBps"
    fact = found.facts["levels.1.link_bandwidth"]
    assert (fact.value, fact.unit, fact.text, fact.source, fact.note) == (1e9, "bytes/s", "1GB/s", "user", None)
    assert found.facts["levels.0.link_bandwidth"] == base.facts["levels.0.link_bandwidth"]
    assert base.device.checked.clusters
    kept, _, runs = base.device.checked.against.rpartition("; ")
    assert "runs" in runs
    assert found.device.checked == Checked(how=base.device.checked.how, against=kept)
    assert replace(found.device, checked=base.device.checked) == base.device
    # Runs of many devices are all that this one was checked against.
    assert resolve("tpu-v5e+ici.latency=2us").device.checked == DATA_SHEET


def test_what_was_assumed_of_a_level_is_not_assumed_of_the_changed_one() -> None:
    base = next(each for each in catalogue().clusters if any(level.assumed for level in each.levels))
    level = next(level for level in base.levels if level.assumed)
    found = resolve(f"{base.name}+{level.name}.link_bandwidth=1GB/s")
    assert [each.assumed for each in found.levels if each.name == level.name] == [""]


@pytest.mark.parametrize(
    ("on", "own"),
    [
        ("dgx-h100", False),
        ("dgx-h100+memory.capacity=160GiB", False),
        ("dgx-h100+memory.bandwidth=6.7TB/s", False),
        ("mine.toml", True),
        ("mine.toml+memory.bandwidth=6.7TB/s", True),
        ("h100-sxm@network.yml", True),
    ],
)
def test_hardware_of_ones_own_is_a_file(on: str, own: bool) -> None:
    assert Options(on=on).own_hardware == own


def test_a_name_with_a_plus_is_no_change() -> None:
    with pytest.raises(MeshcastError, match="no device or cluster"):
        resolve("h100+")


def test_measured_kernels_are_carried_over() -> None:
    assert measured_kernels(resolve("h200+memory.bandwidth=9.6TB/s").device) is measured_kernels(resolve("h200").device)
