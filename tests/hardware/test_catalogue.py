"""The catalogue is data, and data has bugs: sparse peaks, both directions, GB for GiB. These tests look for them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from meshcast import hardware
from meshcast.hardware import Cluster, Device, catalogue_name, resolve, table

CATALOGUE = hardware.catalogue()
FILES = sorted((Path(hardware.__file__).parent / "catalogue").glob("*/*.toml"))
BY_NAME = {device.name: device for device in CATALOGUE.devices}

CONTRACT = (
    *("h200", "h100-sxm", "a100-sxm-80gb", "b200", "gb200", "mi300x"),
    *("tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7"),
    *("dgx-a100", "dgx-h100", "gb200-nvl72", "tpu-v5p-pod"),
)
TENSOR_CORES = [device for device in CATALOGUE.devices if device.kind == "gpu" and "bf16" in device.matrix_flops]
each_device = pytest.mark.parametrize("device", CATALOGUE.devices, ids=lambda device: device.name)
each_tensor_core = pytest.mark.parametrize("device", TENSOR_CORES, ids=lambda device: device.name)
each_cluster = pytest.mark.parametrize("cluster", CATALOGUE.clusters, ids=lambda cluster: cluster.name)


@pytest.mark.parametrize("name", CONTRACT)
def test_contract_names_resolve(name: str) -> None:
    cluster = hardware.resolve(name)
    assert name in (cluster.name, cluster.device.name)
    assert cluster.levels


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("H200", "h200"), ("NVIDIA H100 SXM", "h100-sxm"), ("DGX H100", "dgx-h100"), ("h100_sxm", "h100-sxm"),
        ("v5p", "tpu-v5p"), ("TPU v6e", "tpu-v6e"), ("tpuv5p pod", "tpu-v5p-pod"), ("AMD MI300X", "mi300x"),
    ],
)  # fmt: skip
def test_hardware_goes_by_other_spellings(written: str, name: str) -> None:
    assert catalogue_name(written) == name
    assert resolve(written) == resolve(name)


@pytest.mark.parametrize("written", ["h", "dgx", "tpu", "h100 sxm 9", "", "x/h200"])
def test_what_is_no_spelling_is_unknown(written: str) -> None:
    assert catalogue_name(written) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_number_has_unit_and_source(path: Path) -> None:
    data = tomllib.loads(path.read_text())
    assert data["name"] == path.stem
    assert path.parent.name == data["schema"].removeprefix("meshcast.").split("/")[0] + "s"

    def walk(value: object) -> None:
        assert not isinstance(value, int | float) or isinstance(value, bool), f"bare number {value}"
        if isinstance(value, dict) and "value" in value:
            assert isinstance(value["source"], str)
            assert value["source"] != "user"
        elif isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                walk(item)

    walk(data)
    for name, source in data.get("sources", {}).items():
        assert name == "measured" or source["url"].startswith("https://")


@each_device
def test_facts_cover_the_numbers(device: Device) -> None:
    assert {f"matrix.{dtype}" for dtype in device.matrix_flops} <= device.facts.keys()
    assert {"compute.cores", "compute.clock", "memory.capacity", "memory.bandwidth", "power.tdp"} <= device.facts.keys()
    assert device.facts["memory.bandwidth"].value == device.memory_bandwidth


@each_device
def test_plausible_for_its_kind(device: Device) -> None:
    year = int(device.released)
    assert 2016 <= year <= 2026
    if device.kind == "npu":
        assert device.cells is not None
        cells = device.cells
        # The rate of 8 bits is that of the array: in steps of its inputs, weights in the fewest columns.
        slices, steps = -(-2 // cells.cell_bits), -(-8 // cells.input_bits)
        peak = 2 * cells.rows * (cells.columns // slices) * cells.arrays * device.clock_hz / steps
        assert device.matrix_flops["i8"] == pytest.approx(peak, rel=0.01)
        assert 0.1e9 <= device.memory_bandwidth <= 100e9
        return
    assert 8 * 2**30 <= device.memory_bytes <= 1e12
    if device.kind != "cpu":
        # Bandwidth of accelerators' memory has grown by about 1.4 times a year, from 0.7 to 0.9 TB/s in 2017; a device may be
        # half a chip.
        # Cards of less than 100 W have a sixth of it.
        least = 0.35e12 if device.tdp_watts > 100 else 0.29e12
        assert least <= device.memory_bandwidth <= 0.9e12 * 1.4 ** (year - 2016)
        # Peak over bandwidth, the ridge point in FLOP/byte; an H20 is a Hopper whose products are slowed down for export.
        dense = max(device.matrix_flops.get("bf16", 0.0), device.matrix_flops.get("f16", 0.0))
        if device.matrix_flops:
            assert (30 if device.name == "h20" else 60) <= dense / device.memory_bandwidth <= 600
        else:  # before tensor cores: plain cores alone
            assert 5 <= device.vector_flops["f32"] / device.memory_bandwidth <= 30
    assert device.peak_clock_hz <= device.clock_hz <= 3e9
    assert (device.idle_watts or 0.0) < device.tdp_watts <= 2000
    assert 0.5e-6 <= device.launch_latency_s <= 10e-6
    assert device.cache_bytes < device.memory_bytes
    assert device.cache_bandwidth is None or device.cache_bandwidth > device.memory_bandwidth
    assert not device.matrix_flops or max(device.vector_flops.values()) <= max(device.matrix_flops.values())


@each_tensor_core
def test_dtype_ratios(device: Device) -> None:
    peaks = device.matrix_flops
    assert peaks["bf16"] == pytest.approx(peaks["f16"], rel=0.01)
    if "f8" in peaks:
        assert peaks["f8"] == pytest.approx(2 * peaks["bf16"], rel=0.02)
    if "f4" in peaks and device.name != "rtx-5090":  # its sums of f8 in f32 are slowed down, those of f4 are not
        assert peaks["f4"] == pytest.approx((3 if device.name in ("b300", "gb300") else 2) * peaks["f8"], rel=0.01)
    if device.vendor == "NVIDIA":
        assert peaks["tf32"] == pytest.approx(peaks["bf16"] / 2, rel=0.02)
    # Their int8 rates are no multiple of bf16, or bf16 is at half the rate of sums in f16.
    if not device.name.startswith(("mi2", "b300", "gb300", "rtx-3090", "rtx-4090", "rtx-5090")):
        assert peaks["i8"] == pytest.approx(2 * peaks["bf16"], rel=0.02)


@pytest.mark.parametrize("name", ["tpu-v5e", "tpu-v5p", "tpu-v6e"])
def test_tpu_int8_is_twice_bf16(name: str) -> None:
    peaks = BY_NAME[name].matrix_flops
    assert peaks["i8"] == pytest.approx(2 * peaks["bf16"], rel=0.01)


@pytest.mark.parametrize(
    ("name", "below"),
    [
        ("a100-sxm-80gb", 313e12),
        ("h100-sxm", 1000e12),
        ("h200", 1000e12),
        ("b200", 2500e12),
        ("gb200", 2600e12),
        ("l40s", 370e12),
        ("mi300x", 1400e12),
    ],
)
def test_peaks_are_dense(name: str, below: float) -> None:
    assert BY_NAME[name].matrix_flops["bf16"] < below


@each_tensor_core
def test_peak_is_what_the_cores_do_in_a_clock(device: Device) -> None:
    if device.name == "h20":
        return  # slowed down for export, whatever its clock
    per_core_and_clock = device.matrix_flops["bf16"] / (device.cores * device.peak_clock_hz)
    # Rounded clocks and peaks leave up to 2 %; a sparse peak would give the next power of two.
    architecture = {
        "Ampere": 2048, "Ampere GA10x": 1024, "Hopper": 4096, "Blackwell": 8192, "Blackwell RTX": 1024, "Ada Lovelace": 1024,
        "CDNA 2": 1024, "CDNA 4": 4096,
    }  # fmt: skip
    # Sums in f32 are at half the rate on GeForce cards, and on some of their chips that are sold for servers.
    half = 2 if device.name in ("a10g", "l40", "rtx-3090", "rtx-4090", "rtx-5090") else 1
    assert per_core_and_clock * half == pytest.approx(architecture.get(device.architecture, 2048), rel=0.02)


@each_cluster
def test_levels_grow_outwards(cluster: Cluster) -> None:
    sizes = [level.size for level in cluster.levels]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == cluster.max_devices
    rates = [level.bandwidth for level in cluster.levels]
    assert rates == sorted(rates, reverse=True)
    assert cluster.device.name in BY_NAME
    for level in cluster.levels:
        assert 1e9 <= level.bandwidth <= cluster.device.memory_bandwidth
        assert 0 < level.latency_s < 100e-6
        assert level.topology != "torus" or level.links == 2 * len(level.dims)
        assert level.topology != "full" or level.links == level.size - 1


@pytest.mark.parametrize(
    ("name", "per_direction"),
    [("dgx-a100", 300e9), ("dgx-h100", 450e9), ("gb200-nvl72", 900e9), ("tpu-v5p-pod", 600e9), ("tpu-v5e-pod", 200e9)],
)
def test_link_rates_are_of_one_direction(name: str, per_direction: float) -> None:
    assert hardware.load_cluster(name).levels[0].bandwidth == pytest.approx(per_direction)


def test_names_and_aliases_are_unique() -> None:
    everything: list[Device | Cluster] = [*CATALOGUE.devices, *CATALOGUE.clusters]
    names = [name for item in everything for name in (item.name, *item.aliases)]
    assert len(names) == len(set(names))
    assert all(device.default_cluster in (None, *hardware.cluster_names()) for device in CATALOGUE.devices)


def test_default_cluster_is_made_of_a_close_relative() -> None:
    for device in CATALOGUE.devices:
        if device.default_cluster:
            assert hardware.load_cluster(device.default_cluster).device.architecture == device.architecture


def test_docs_show_the_catalogue() -> None:
    docs = Path(__file__).parents[2] / "docs" / "hardware.md"
    text = docs.read_text()
    assert table.device_table(CATALOGUE.devices) in text, "run python -m meshcast.hardware.table and paste it"
    assert table.cluster_table(CATALOGUE.clusters) in text, "run python -m meshcast.hardware.table and paste it"
