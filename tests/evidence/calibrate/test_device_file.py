from __future__ import annotations

from pathlib import Path

from meshcast.estimate.measurements.file import ProfileHeader
from meshcast.evidence.calibrate.device_file import MeasuredRates, device_toml, relative
from meshcast.hardware import load_device

RATES = MeasuredRates(
    matrix={"bf16": 700e12, "tf32": 300e12}, vector=50e12, bandwidth=3.0e12, memory_bytes=60 * 2**30, launch_s=None
)


def test_the_nearest_relative_of_its_kind() -> None:
    assert relative(RATES, "gpu").architecture == "Hopper"
    assert relative(RATES, "cpu").name == "cpu-generic"


def test_the_file_is_a_device_with_the_measured_rates(tmp_path: Path) -> None:
    header = ProfileHeader(
        device="new-card", kind="New card", backend="gpu", suite=1, jax="0.12", jaxlib="0.12", date="2026-01-02"
    )
    path = tmp_path / "new-card.toml"
    path.write_text(device_toml(RATES, header))
    device = load_device(path)
    assert (device.name, device.kind) == ("new-card", "gpu")
    assert device.matrix_flops["bf16"] == 700e12
    assert device.memory_bandwidth == 3.0e12
    assert device.memory_bytes == 60 * 2**30
    assert device.facts["matrix.tf32"].source == "measured"
    assert device.facts["matrix.f8"].source != "measured"  # the relative's own
