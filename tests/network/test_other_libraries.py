"""Collectives of other libraries than NCCL's and XLA's, of jobs that fill no slice, and of racks that are filled alike."""

from __future__ import annotations

import pytest

from meshcast.base import Group
from meshcast.hardware import load_cluster
from meshcast.network import CollectivePlan, collective_of, filled_alike, plan_collective


def planned(kind: str, size: int, on: str, devices: int) -> CollectivePlan:
    cluster = filled_alike(load_cluster(on), devices)
    return plan_collective(collective_of(kind, size, Group(dims=((devices, 1),))), cluster)


@pytest.mark.parametrize("on", ["aws-trn1", "aws-trn2"])
def test_trainium_s_steps_across_hosts_double(on: str) -> None:
    """Recursive doubling and halving: twice as many hosts are one step a phase more, not twice as many steps."""
    few, many = (planned("all_reduce", 2**16, on, devices) for devices in (4096, 8192))
    assert many.algorithm == "hierarchical + halving-doubling"
    assert many.seconds < 1.3 * few.seconds
    assert many.seconds < dict(many.others)["hierarchical"] / 10
    assert "AWS Neuron" in many.why


@pytest.mark.parametrize("devices", [8, 64, 1024])
def test_gaudi_has_a_library_of_its_own(devices: int) -> None:
    for size in (2**14, 2**30):
        plan = planned("all_reduce", size, "gaudi2-server", devices)
        assert plan.protocol == ""
        assert "HCCL" in plan.why
        assert plan.algorithm in ("direct", "halving-doubling", "hierarchical")


def test_a_box_that_is_not_closed_goes_side_by_side_between_the_dies_too() -> None:
    """2 x 4 x 4 chips of two cores: 1 + 3 + 3 steps a phase between chips, as with one core a chip, not 31."""
    cores = planned("all_gather", 2**20, "tpu-v7-core-pod", 64)
    assert [stage.steps for stage in cores.stages if stage.level.name == "ici"] == [7]


def test_a_job_that_fills_no_slice_has_rings_through_the_next_larger_one() -> None:
    part, whole = (planned("all_reduce", 2**30, "tpu-v7-pod", devices) for devices in (8192, 9216))
    assert whole.seconds < part.seconds < 1.5 * whole.seconds


def test_racks_are_filled_alike() -> None:
    cluster = load_cluster("gb200-nvl72")
    sizes = {devices: filled_alike(cluster, devices).levels[0].size for devices in (64, 72, 144, 256, 512, 1024, 16384)}
    assert sizes == {64: 72, 72: 72, 144: 72, 256: 64, 512: 64, 1024: 64, 16384: 64}
    for whole, devices in (("dgx-h100", 12), ("tpu-v5e-pod", 384), ("tpu-v5p-pod", 9216)):
        assert filled_alike(load_cluster(whole), devices) == load_cluster(whole), (
            "hosts, and slices with shapes of their own"
        )
    fewer, more = (planned("all_reduce", 2**33, "gb200-nvl72", devices) for devices in (512, 576))
    assert fewer.seconds < 1.1 * more.seconds
