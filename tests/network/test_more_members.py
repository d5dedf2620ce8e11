"""More members with the same share each never gather or sum sooner, however a pod's slices close."""

from __future__ import annotations

import pytest

from meshcast.base.mesh import Group
from meshcast.hardware import load_cluster
from meshcast.network import plan_collective
from meshcast.workload.graph import Collective

PODS = ("tpu-v4-pod", "tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod", "tpu-v7-pod")


@pytest.mark.parametrize("pod", PODS)
@pytest.mark.parametrize("kind", ["all_gather", "all_reduce"])
@pytest.mark.parametrize("share", [2**10, 2**16, 2**22])
def test_more_members_are_not_faster(pod: str, kind: str, share: int) -> None:
    cluster, seconds = load_cluster(pod), []
    for members in (2, 4, 8, 16, 32, 64, 128, 256):
        whole = share * members
        group, given = Group(dims=((members, 1),)), share if kind == "all_gather" else whole
        asked = Collective(kind=kind, group=group, input_bytes=given, output_bytes=whole)
        seconds.append(plan_collective(asked, cluster).seconds)
    assert seconds == sorted(seconds)
