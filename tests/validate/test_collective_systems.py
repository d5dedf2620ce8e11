"""Words of measurements to clusters: devices, hosts, networks, slices; and what is not understood."""

from __future__ import annotations

import pytest

from meshcast.errors import UnsupportedError
from meshcast.validate.collectives.rows import CollectiveRow
from meshcast.validate.collectives.systems import SEVERAL, system_of


def row(
    hardware: str, devices: int | None = 8, nodes: int | None = 1, *, several: bool = False, notes: str = "",
    collective: str = "all_reduce",
) -> CollectiveRow:  # fmt: skip
    return CollectiveRow(
        id="row", hardware=hardware, devices=devices, nodes=nodes, several_nodes=several, collective=collective,
        size=1e6, time_us=1.0, busbw=None, notes=notes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("hardware", "cluster", "label"),
    [
        ("H100 80GB HBM3 (NCCL 2.29.2)", "dgx-h100", "H100"),
        ("H200 SXM", "dgx-h200", "H200"),
        ("H200 p5en.48xlarge EFA", "aws-p5en", "H200"),
        ("H100 p5.48xlarge NVSwitch (NVLS)", "aws-p5", "H100"),
        ("H100 PCIe", "h100-pcie-server", "H100 PCIe"),
        ("B200 NVLink5 p6-b200", "aws-p6-b200", "B200"),
        ("B300 SXM", "dgx-b300", "B300"),
        ("GB200 (NCCL 2.29.2)", "gb200-nvl72", "GB200"),
        ("GB300 NVL72", "gb300-nvl72", "GB300"),
        ("A100-SXM4-80GB", "dgx-a100", "A100"),
        ("A100 40GB OCI BM, RoCE", "dgx-a100-40gb", "A100"),
        ("p4dn.24xlarge (A100), EFA", "aws-p4d", "A100"),
        ("A100 p4de.24xlarge, EFA", "aws-p4de", "A100"),
        ("V100 SXM2", "dgx-v100", "V100"),
        ("MI300X", "mi300x-node", "MI300X"),
        ("L40S PCIe", "l40s-server", "L40S"),
        ("PCIe Gen5", "h100-pcie-server", "PCIe"),
        ("TPU v5p 2x2x1", "tpu-v5p-pod", "TPU v5p"),
        ("TPU v5e-8", "tpu-v5e-pod", "TPU v5e"),
        ("TPU v4", "tpu-v4-pod", "TPU v4"),
        ("TPU v6e-8 ICI", "tpu-v6e-pod", "TPU v6e"),
        ("TPU7x Ironwood", "tpu-v7-core-pod", "TPU v7"),
    ],
)
def test_devices_and_hosts(hardware: str, cluster: str, label: str) -> None:
    found = system_of(row(hardware))
    assert (found.cluster.name, found.hardware_class) == (cluster, label)
    assert found.devices == 8


def test_switches_that_add_can_be_off() -> None:
    assert system_of(row("B200")).cluster.levels[0].in_network_reduction
    assert not system_of(row("B200", notes="NVLS off")).cluster.levels[0].in_network_reduction
    assert not system_of(row("H100 NVLink4", notes="vendor expected peak busbw")).cluster.levels[0].in_network_reduction
    assert system_of(row("H100 NVLink4 SHARP", notes="vendor expected peak")).cluster.levels[0].in_network_reduction


def test_networks_and_their_cards() -> None:
    efa = system_of(row("A100 p4de.24xlarge, EFA", 16, 2)).cluster.levels[1]
    assert (efa.link.name, efa.bandwidth) == ("efa-1", pytest.approx(50e9 / 8))
    roce = system_of(row("B300 SXM + RoCE", 16, 2)).cluster.levels[1]
    assert (roce.link.name, roce.bandwidth) == ("roce", pytest.approx(100e9))
    half = system_of(row("H100 + 4x200Gb IB", 16, 2)).cluster.levels[1]
    assert half.bandwidth == pytest.approx(4 * 25e9 / 8)
    whole = system_of(row("H100, EFA 3200 Gbps", 16, 2)).cluster.levels[1]
    assert (whole.link.name, whole.bandwidth) == ("efa-2", pytest.approx(50e9))
    assert system_of(row("A100 80GB", 16, 2)).cluster.levels[1].bandwidth == pytest.approx(25e9)  # memory, no card


def test_several_nodes_and_single_cards() -> None:
    many = system_of(row("DGX H100 + 8x400Gb", None, None, several=True))
    assert many.devices == 8 * SEVERAL
    card = system_of(row("400Gb RDMA single NIC", None, None, several=True))
    assert card.devices == SEVERAL
    assert [level.bandwidth for level in card.cluster.levels] == [pytest.approx(50e9)]
    sharp = system_of(row("DGX H100 + 8x400Gb + SHARP", None, None, several=True))
    assert sharp.algorithm == "in-network"


def test_nodes_that_are_not_full() -> None:
    found = system_of(row("H100", 16, 4))
    assert found.cluster.levels[0].size == 4
    assert len(system_of(row("H100", 4, 4)).cluster.levels) == 1  # one device each: no NVLink at all
    racks = system_of(row("GB200 NVL72 one rack", 72, 18))
    assert [level.size for level in racks.cluster.levels] == [72]


def test_devices_that_are_fully_connected() -> None:
    level = system_of(row("A100 80GB NVLink (4 GPUs fully connected)", 4)).cluster.levels[0]
    assert (level.topology, level.links, level.bandwidth) == ("full", 3, pytest.approx(300e9))


def test_slices() -> None:
    chips = system_of(row("TPU7x Ironwood 2x2x1 ICI", 4, None))
    assert chips.group.dims == ((4, 2),)  # one TensorCore of each chip
    assert chips.group.devices == 8
    axis = system_of(row("TPU7x Ironwood 2x2x2 ICI", 4, None))  # along one axis, the others beside it
    assert (axis.group.dims, axis.group.devices) == (((4, 2),), 16)
    cores = system_of(row("TPU7x Ironwood 2x2x1 ICI", 8, None))
    assert cores.group.dims == ((8, 1),)
    between = system_of(row("TPU v6e-256 DCN (2 slices)", 512, None, collective="all_reduce (psum_dcn)"))
    assert (between.devices, between.group.dims, between.group.devices) == (2, ((2, 256),), 512)


@pytest.mark.parametrize(
    ("hardware", "devices", "message"),
    [("abacus", 8, "abacus"), ("H100", 1, "nothing to send"), ("TPU v4", None, "number of devices")],
)
def test_what_is_not_understood_says_so(hardware: str, devices: int | None, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        system_of(row(hardware, devices))
