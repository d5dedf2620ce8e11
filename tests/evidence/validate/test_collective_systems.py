"""Words of measurements to clusters: devices, hosts, networks, slices; what is assumed, and what is not understood."""

from __future__ import annotations

import pytest

from meshcast.base.errors import UnsupportedError
from meshcast.evidence.validate.collectives import hosts
from meshcast.evidence.validate.collectives.rows import CollectiveRow
from meshcast.evidence.validate.collectives.systems import SEVERAL, system_of
from meshcast.hardware import load_cluster


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
        ("TPU v5p 2x2x2", "tpu-v5p-pod", "TPU v5p"),
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


@pytest.mark.parametrize(
    ("hardware", "link", "gbit"),
    [
        ("H100 two nodes, 8 NICs 400Gb", "infiniband", 400),
        ("H100 two nodes, 4 NICs 400Gb", "infiniband", 4 * 400 / 8),
        ("H100, single 200Gb NIC", "infiniband", 200 / 8),
        ("H100 SXM + one NIC 200 Gbps", "infiniband", 200 / 8),
        ("H100 1 NIC per GPU 400Gb", "infiniband", 400),
        ("H100 100 GbE TCP", "roce", 100 / 8),
        ("H100 4x ConnectX-7 RoCE", "roce", 4 * 400 / 8),
        ("H100, 3.2 Tbps InfiniBand", "infiniband", 400),
        ("A100 4 NICs HDR", "infiniband", 4 * 200 / 8),
        ("A100 HDR100", "infiniband", 100),
        ("H100 ConnectX-7 NICs", "infiniband", 400),
        ("H100 4 ConnectX-7 NICs", "infiniband", 4 * 400 / 8),
        ("H100 1 ConnectX-7 per GPU", "infiniband", 400),
        ("DGX-1 V100 EDR", "infiniband", 50),
        ("A100 Slingshot 11 NICs", "slingshot", 200),
        ("A100 4x HDR", "infiniband", 4 * 200 / 8),
        ("H100 NDR400, dual-socket hosts", "infiniband", 400),
        ("A100 80G 200G HDR", "infiniband", 200),  # the first is memory
        ("V100 p3dn.24xlarge, EFA", "efa-1", 100 / 8),
        ("p3.16xlarge 25Gb Ethernet", "roce", 25 / 8),
        ("A100 p4d.24xlarge 400 Gbps EFA", "efa-1", 50),
        ("p5en.48xlarge EFAv3", "efa-3", 400),
        ("ND A100 v4", "infiniband", 200),
        ("a3-megagpu-8g", "roce", 200),
        ("MI300X 400GbE", "roce", 400),
        ("A100 Slingshot 11", "slingshot", 200),
    ],
)
def test_a_device_has_its_share_of_the_cards(hardware: str, link: str, gbit: float) -> None:
    level = system_of(row(hardware, 16, 2)).cluster.levels[1]
    assert (level.link.name, level.bandwidth * 8 / 1e9) == (link, pytest.approx(gbit))


def test_a_device_alone_in_its_host_has_the_card_next_to_it() -> None:
    (alone,) = system_of(row("DGX H100 + 8x400Gb", 2, 2)).cluster.levels
    assert alone.bandwidth == pytest.approx(50e9)
    (half,) = system_of(row("V100 EDR", 2, 2)).cluster.levels  # four cards for eight devices
    assert half.bandwidth == pytest.approx(12.5e9)


def test_cards_of_devices_are_those_of_the_catalogue() -> None:
    for _, host in (*hosts._DEVICES, *hosts._HOSTS):
        level = load_cluster(host.cluster).levels[1]
        if not host.sold or host.sold.startswith(("p4", "p5", "Perl")):
            assert host.cards * host.gbit / host.devices == pytest.approx(level.bandwidth * 8 / 1e9), host


def test_what_no_word_says_is_listed() -> None:
    assert system_of(row("H100", 16, 2)).assumed == (
        "network infiniband",
        "400 Gbit/s a card",
        "8 network cards a host",
    )
    assert system_of(row("H100 8x400Gb IB", 16, 2)).assumed == ()
    assert system_of(row("p5.48xlarge", 16, 2)).assumed == ()
    assert system_of(row("H100")).assumed == ()


def test_links_inside_a_host() -> None:
    (switched,) = system_of(row("DGX-2 V100 NVSwitch", 16)).cluster.levels
    assert (switched.topology, switched.size, switched.bandwidth) == ("switch", 16, pytest.approx(150e9))
    (slots,) = system_of(row("V100 PCIe", 8)).cluster.levels
    assert (slots.link.name, slots.bandwidth) == ("pcie", pytest.approx(16e9))
    pair, rest = system_of(row("A100 PCIe NVLink bridge", 4)).cluster.levels
    assert (pair.size, pair.bandwidth, rest.bandwidth) == (2, pytest.approx(300e9), pytest.approx(32e9))
    assert system_of(row("H100 SXM5, PCIe Gen5 NICs", 8)).hardware_class == "H100"
    assert system_of(row("L40S PCIe, P2P enabled", 8)).cluster.levels[0].link.name == "pcie"
    assert system_of(row("GB200 NVL36", 72, 18)).cluster.levels[0].size == 36


def test_words_that_change_algorithms() -> None:
    assert system_of(row("H100 (ring)")).algorithm == "ring"
    assert system_of(row("H100", notes="NCCL_ALGO=Tree, NCCL_PROTO=LL128")).algorithm == "tree"
    assert system_of(row("H100", notes="NCCL_PROTO=LL128")).protocol == "LL128"
    assert system_of(row("H100 on a fat tree", 16, 2)).algorithm is None
    assert system_of(row("H100", notes="as a ring would")).algorithm is None


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
    whole = system_of(row("TPU v5e 16x16 DCN (2 slices)", 512, None))
    assert (whole.devices, whole.group.dims) == (512, ((512, 1),))
    assert whole.cluster.levels[0].size == 256


def test_shapes_of_slices() -> None:
    (long,) = system_of(row("TPU v4 2x2x16", 64, None)).cluster.levels
    assert (long.dims, long.size) == ((2, 2, 16), 64)
    (small,) = system_of(row("TPU v5e 4x4", 16, None)).cluster.levels
    assert (small.dims, small.wrap) == ((4, 4), "never")  # only a whole side of the pod is closed
    (pod,) = system_of(row("TPU v5e 16x16", 256, None)).cluster.levels
    assert (pod.dims, pod.wrap) == ((16, 16), "always")
    assert system_of(row("TPU v4-128", 64, None)).devices == 64  # TensorCores, two a chip


@pytest.mark.parametrize(
    ("hardware", "devices", "nodes", "message"),
    [
        ("abacus", 8, 1, "abacus"),
        ("", 8, 1, "no hardware"),
        ("MI300A", 4, 1, "unknown device MI300A"),
        ("RTX A6000 NVLink bridge", 2, 1, "unknown device RTX A6000"),
        ("NVIDIA T4", 4, 1, "unknown device T4"),
        ("L4", 8, 1, "unknown device L4"),
        ("GH200", 4, 1, "unknown device GH200"),
        ("H100 NVL", 2, 1, "unknown device H100 NVL"),
        ("TPU v2-8", 8, None, "unknown device"),
        ("H100 and A100", 8, 1, "at once"),
        ("H100 p5e.48xlarge", 8, 1, "at once"),
        ("H100", 1, 1, "nothing to send"),
        ("H100", 16, 1, "16 devices in 1 nodes"),
        ("H100", 12, 5, "evenly"),
        ("H100, 8 nodes", 16, 2, "the hardware says 8"),
        ("A100 NVLink4", 8, 1, "NVLink 3"),
        ("A100 NVLS", 8, 1, "no switches that add"),
        ("H100 NVLink 600GB/s", 8, 1, "450 GB/s"),
        ("B200 PCIe", 8, 1, "no B200 on PCIe"),
        ("A100 PCIe Gen5", 8, 1, "PCIe 4"),
        ("H100 p5.48xlarge 1600 Gbps", 16, 2, "contradict the instance p5"),
        ("H100 RoCE or InfiniBand", 16, 2, "infiniband and roce"),
        ("H100 400Gb IB, 200Gb Ethernet", 16, 2, "infiniband and ethernet"),
        ("H100 4 NICs and 8 NICs", 16, 2, "4 and 8"),
        ("H100 2:1 oversubscribed", 16, 2, "oversubscribed"),
        ("H100 DCN", 16, 2, "slices of TPUs"),
        ("GB200 two racks", 71, None, "2 racks"),
        ("TPU v4", None, None, "number of devices"),
        ("TPU v5e 32x32", 64, None, "fits"),
        ("TPU v5e 4x16", 64, None, "some sides only"),
        ("TPU v5e-256 4x4", 16, None, "names 256 chips"),
        ("TPU v4 4x4x4", 128, None, "more than the 64"),
        ("TPU v5e DCN", 512, None, "how many slices"),
        ("TPU v5e 16x16 DCN (2 slices)", 256, None, "make no 2 slices of 256"),
    ],
)
def test_what_is_not_understood_says_so(hardware: str, devices: int | None, nodes: int | None, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        system_of(row(hardware, devices, nodes))
