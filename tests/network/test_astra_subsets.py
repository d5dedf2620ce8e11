"""Collectives among some NPUs: a ring through the members over the network as it is. Figures are ASTRA-sim's own answers."""

from __future__ import annotations

import pytest

from meshcast.base.mesh import Mesh
from meshcast.hardware import resolve
from meshcast.hardware.astra import AstraDimension, AstraNetwork, Shape, network_cluster
from meshcast.network.astra import AstraBackend, AstraKind, astra_plan, finish_ns
from meshcast.network.astra.model import preset_system
from meshcast.network.astra.subsets import message_ns, subset_ns
from meshcast.network.setting import WholeJob
from meshcast.workload.graph import Collective

DEVICE = resolve("h100-sxm").device
MIB = 1 << 20


def network(shape: Shape, npus: int = 8) -> AstraNetwork:
    return AstraNetwork(dimensions=(AstraDimension(shape=shape, npus=npus, bandwidth=50.0, latency_ns=500.0),))


TWO_LEVELS = AstraNetwork(
    dimensions=(
        AstraDimension(shape="FullyConnected", npus=4, bandwidth=200.0, latency_ns=100.0),
        AstraDimension(shape="Switch", npus=4, bandwidth=25.0, latency_ns=1000.0),
    )
)


# Commit c459ab61, the group alone in a file of communicator groups, 4 splits, endpoint delay 10, local-mem-bw of an H100.
@pytest.mark.parametrize(
    ("on", "members", "kind", "backend", "answer"),
    [
        (network("Ring"), (0, 1, 2, 3), "all_reduce", "Unaware", 48244),
        (network("Ring"), (0, 1, 2, 3), "all_reduce", "Aware", 62884),
        (network("Ring"), (0, 2, 4, 6), "all_gather", "Unaware", 70744),
        (network("Ring"), (0, 2, 4, 6), "all_gather", "Aware", 129328),
        (network("Ring"), (1, 3, 5), "all_to_all", "Unaware", 35684),
        (network("Ring"), (1, 3, 5), "all_to_all", "Aware", 68224),
        (network("Switch"), (1, 3, 5), "all_reduce", "Unaware", 42856),
        (network("Switch"), (1, 3, 5), "all_to_all", "Aware", 51208),
        (TWO_LEVELS, (0, 1, 2, 3, 4, 5), "all_reduce", "Unaware", 13340),
        (TWO_LEVELS, (0, 1, 2, 3, 4, 5), "all_to_all", "Unaware", 18820),
    ],
)
def test_answers_of_astra_sim(
    on: AstraNetwork, members: tuple[int, ...], kind: AstraKind, backend: AstraBackend, answer: int
) -> None:
    assert subset_ns(on, preset_system(on, DEVICE), kind, MIB, members, backend) == answer


def test_every_other_npu_has_two_hops_to_the_next() -> None:
    far = AstraNetwork(dimensions=(AstraDimension(shape="Ring", npus=4, bandwidth=50.0, latency_ns=1000.0),))
    on = network("Ring")
    assert subset_ns(on, preset_system(on, DEVICE), "all_reduce", MIB, (0, 2, 4, 6)) == finish_ns(
        far, preset_system(far, DEVICE), "all_reduce", MIB
    )


@pytest.mark.parametrize(("target", "hops"), [(1, 1), (3, 3), (4, 4), (6, 2)])
def test_a_message_takes_the_shorter_way(target: int, hops: int) -> None:
    assert message_ns(network("Ring"), 0, target, 0) == 500 * hops


def test_a_job_decides_what_is_all_of_it() -> None:
    cluster = network_cluster(network("Ring"), DEVICE, name="ring")
    job = WholeJob(cluster=cluster, devices=8)
    mesh = Mesh.of({"data": 2, "tensor": 4})
    for axis, members in (("tensor", (0, 1, 2, 3)), ("data", (0, 4))):
        some = Collective(kind="all_reduce", group=mesh.group([axis]), input_bytes=MIB, output_bytes=MIB)
        expected = subset_ns(network("Ring"), preset_system(network("Ring"), DEVICE), "all_reduce", MIB, members)
        assert astra_plan(some, cluster, job=job).seconds == pytest.approx(expected * 1e-9, rel=1e-12)
    whole = Collective(kind="all_reduce", group=mesh.group(["data", "tensor"]), input_bytes=MIB, output_bytes=MIB)
    assert astra_plan(whole, cluster, job=job) == astra_plan(whole, cluster)
