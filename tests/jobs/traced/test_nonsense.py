"""Traces that cannot be: each is refused with the file, the node, its byte, both numbers and what to change."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshcast import predict
from meshcast.base.errors import InputError, MeshcastError, UnsupportedError, UsageError
from meshcast.chakra import Node, NodeType, NodeValues, trace_bytes
from meshcast.chakra.wire import bytes_field, number_field, text_field, varint
from tests.jobs.traced.jobs import collective, compute, job, receive, send

HEADER = 8  # bytes of a file before its first node: its metadata
Ranks = Sequence[Sequence[Node]]


def refused(target: Path, error: type[MeshcastError] = InputError) -> MeshcastError:
    with pytest.raises(error) as raised:
        predict(target, on="dgx-h100")
    assert raised.value.fix
    return raised.value


def listing(*groups: tuple[str, Any]) -> Node:
    said = json.dumps([{"pg_name": name, "ranks": ranks} for name, ranks in groups])
    return Node(number=1, name="process_group:init", kind=NodeType.METADATA, inputs=NodeValues(values=said))


def node(kind: NodeType, **said: Any) -> Node:
    return Node(number=1, name="k1", kind=kind, attributes=said)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (compute(1, math.nan), "duration_ns is nan, which is no duration"),
        (compute(1, math.inf), "duration_ns is inf"),
        (compute(1, -5), "duration_ns is -5000.0"),
        (compute(1, 1e17), "which is 1,157,407 days"),
        (compute(1, 1, duration_ns="soon"), "duration_ns is 'soon'"),
        (compute(1, 1, duration_ns=True), "duration_ns is True"),
        (Node(number=1, name="k1", kind=NodeType.COMPUTE, duration_us=2**63), "duration_micros is 9223372036854775808"),
        (compute(1, 1, num_ops=-3), "num_ops is -3, not a whole number of at least 0"),
        (compute(1, 1, num_ops=math.nan), "num_ops is nan"),
        (compute(1, 1, num_ops=10, matrix_ops=20), "matrix_ops is 20 of num_ops 10"),
        (compute(1, 1, tensor_size=2**60), "tensor_size is 1152921504606846976 bytes"),
        (compute(1, 1, repeat=0), "repeat is 0, not a whole number of at least 1"),
        (compute(1, 1, stream="seven"), "stream is 'seven'"),
        (compute(1, 1, is_cpu_op="no"), "is_cpu_op is 'no', neither true nor false"),
        (compute(1, 1, inputs=("a",)), "inputs is ['a'], not names and bytes in turn"),
        (compute(1, 1, outputs=("a", "-4")), "outputs is ['a', '-4']"),
        (node(NodeType.COLLECTIVE), "has no attribute 'comm_type'"),
        (node(NodeType.COLLECTIVE, comm_type=0), "has no attribute 'comm_size'"),
        (node(NodeType.COLLECTIVE, comm_type=0, comm_size=-1), "comm_size is -1"),
        (node(NodeType.COLLECTIVE, comm_type=0, comm_size=True), "comm_size is True"),
        (node(NodeType.COLLECTIVE, comm_type=0, comm_size=2**62), "comm_size is 4611686018427387904 bytes"),
        (node(NodeType.COLLECTIVE, comm_type=-1, comm_size=1), "comm_type is -1"),
        (node(NodeType.SEND, comm_size=1), "has no attribute 'comm_dst'"),
        (node(NodeType.SEND, comm_size=1, comm_dst=-1), "comm_dst is -1"),
        (node(NodeType.RECEIVE, comm_size=1, comm_src=0, comm_tag=-1), "comm_tag is -1"),
        (node(NodeType.MEMORY_LOAD), "has no attribute 'tensor_size'"),
    ],
)  # fmt: skip
def test_a_node(tmp_path: Path, one: Node, said: str) -> None:
    error = refused(job(tmp_path, [[one]]))
    assert f"node 1 {one.name!r} (at byte {HEADER})" in error.message
    assert said in error.message
    assert error.where == str(tmp_path / "job.0.et")


REDUCE, GATHER = 0, 2


@pytest.mark.parametrize(
    ("ranks", "groups", "said"),
    [
        ([[collective(1, 1)], [collective(1, 1, kind=GATHER)]], None,
         "collective 1 of the group of all ranks is all_reduce of 1048576 bytes in rank 0's node 1 'c1' (at byte 8 of "
         "JOB.0.et), and all_gather of 1048576 bytes in rank 1's node 1 'c1' (at byte 8 of JOB.1.et)"),
        ([[collective(1, 1, size=64)], [collective(1, 1, size=65)]], None, "all_reduce of 64 bytes in rank 0's node 1"),
        ([[collective(1, 1, repeat=2)], [collective(1, 1)]], None, "1048576 bytes in 2 launches"),
        ([[collective(1, 1), collective(2, 1, kind=GATHER)], [collective(1, 1, kind=GATHER), collective(2, 1)]], None,
         "collective 1 of the group of all ranks"),
        ([[collective(1, 1), collective(2, 1)], [collective(1, 1)]], None,
         "rank 0's node 2 'c2' (at byte 89 of JOB.0.et) is collective 2 of the group of all ranks, and rank 1 has 1 of them in "
         "JOB.1.et"),
        ([[collective(1, 1)], [compute(1, 1)]], None,
         "is over the group of all ranks, and rank 1 of that group has no collective over it in JOB.1.et"),
        ([[collective(1, 1, pg_name="9")]] * 2, {},
         "node 1 'c1' (at byte 8 of JOB.0.et) is over group '9', which is not listed"),
        ([[collective(1, 1, pg_name="1")]] * 2, {"1": [0]},
         "node 1 'c1' (at byte 8 of JOB.1.et) of rank 1 is over group '1' of ranks 0"),
        ([[send(1, 1, 5)], [compute(1, 1)]], None,
         "node 1 's1' (at byte 8 of JOB.0.et) of rank 0 is a message to or from rank 5, and there are 2 (0 to 1)"),
        ([[send(1, 1, 0)], [compute(1, 1)]], None, "is a message to or from that rank itself"),
        ([[send(1, 1, 0)]], None, "is a message to or from that rank itself"),
        ([[receive(1, 1)], [compute(1, 1)]], None,
         "rank 0's node 1 'r1' (at byte 8 of JOB.0.et) is receive 1 with tag 0 between ranks 0 and 1, and rank 1 has 0 of its "
         "sends in JOB.1.et"),
        ([[send(1, 1, 1)], [compute(1, 1)]], None, "rank 1 has 0 of its receives"),
        ([[send(1, 1, 1, tag=3)], [receive(1, 0, tag=4)]], None, "send 1 with tag 3 between ranks 0 and 1"),
        ([[send(1, 1, 1)], [receive(1, 0, size=999)]], None,
         "rank 0's node 1 's1' (at byte 8 of JOB.0.et) is a send of 1000 bytes, and its receive, rank 1's node 1 'r1' (at byte "
         "8 of JOB.1.et), of 999"),
        ([[receive(1, 1), send(2, 1, 1, 1)], [receive(1, 0), send(2, 1, 0, 1)]], None,
         "deadlock: 4 nodes of ranks 0-1 wait for each other in a circle: rank 0's node 1 'r1' (at byte 8 of JOB.0.et), a "
         "receive, which waits for rank 1's node 2 's2'"),
        ([[receive(1, 2), send(2, 1, 1, 1)], [receive(1, 0), send(2, 1, 2, 1)], [receive(1, 1), send(2, 1, 0, 1)]], None,
         "deadlock: "),
        ([[collective(1, 1, 2), receive(2, 1)], [collective(1, 1), send(2, 1, 0, 1)]], None, "rank 1's node 1 'c1'"),
        ([[compute(1, 1)]] * 2, {"1": [0, 5]}, "group '1' has rank 5, and only ranks 0 to 1 have traces"),
        ([[compute(1, 1)]] * 2, {"1": [0, 1, 0]}, "group '1' has rank 0 twice"),
        ([[compute(1, 1)]] * 2, {"1": [0, -1]}, "not a list of ranks"),
        ([[listing(("1", [0, 1, 1])), compute(2, 1)]] * 2, None,
         "node 1 'process_group:init' (at byte 8): process group '1' has rank 1 twice"),
        ([[listing(("1", [0, 7])), compute(2, 1)]] * 2, None, "group '1' has rank 7, and only ranks 0 to 1 have traces"),
        ([[listing(("1", 5)), compute(2, 1)]], None, "process group '1' is 5, not a list of ranks"),
        ([[listing(("1", [0])), compute(2, 1)], [listing(("1", [1])), compute(2, 1)]], None,
         "process group '1' is of ranks 1, and elsewhere of ranks 0"),
        ([[listing(("1", [0, 1]))]] * 2, None, "there is nothing to run"),
        ([[Node(number=1, name="aten::mm", kind=NodeType.COMPUTE, attributes={"is_cpu_op": True})]], None,
         "nothing in it takes time: none of 1 nodes has a duration"),
        ([[]] * 2, None, "there is nothing to run"),
        ([[compute(1, 1, 2)]], None, "waits for node 2"),
    ],
)  # fmt: skip
def test_ranks_that_do_not_fit_together(
    tmp_path: Path, ranks: Ranks, groups: Mapping[str, list[int]] | None, said: str
) -> None:
    error = refused(job(tmp_path, ranks, groups))
    assert said in error.message.replace(str(tmp_path / "job"), "JOB")
    assert error.where


def test_a_circle_names_every_rank_and_node(tmp_path: Path) -> None:
    """Three ranks that each send on what they get from the last: nobody begins."""
    ranks = [[receive(1, (rank + 2) % 3), send(2, 1, (rank + 1) % 3, 1)] for rank in range(3)]
    ranks[0].insert(0, compute(7, 1))  # no class stands for another
    ranks[1].insert(0, compute(8, 1))
    said = refused(job(tmp_path, ranks)).message
    assert said.startswith("deadlock: 6 nodes of ranks 0-2 wait for each other in a circle")
    assert {rank for rank in range(3) if re.search(rf"rank {rank}'s node 1 'r1' \(at byte \d+ of", said)} == {0, 1, 2}


def test_what_is_uneven_but_right(tmp_path: Path) -> None:
    """An all-to-all may send different amounts; a barrier has no size and takes a latency; order within a file is free."""
    uneven = [[collective(1, 3, kind=6, size=100)], [collective(1, 5, kind=6, size=900)]]
    assert predict(job(tmp_path, uneven), on="dgx-h100").step_time_s == pytest.approx(5e-6)
    barrier = [
        [compute(1, 10), node(NodeType.COLLECTIVE, comm_type=9)],
        [compute(1, 30), node(NodeType.COLLECTIVE, comm_type=9)],
    ]
    barrier = [[first, Node(number=2, name="b", kind=second.kind, data_deps=(1,), attributes=second.attributes)]
               for first, second in barrier]  # fmt: skip
    found = predict(job(tmp_path, barrier), on="dgx-h100")
    assert found.step_time_s is not None
    assert 30e-6 < found.step_time_s < 60e-6


def test_collectives_that_nobody_models(tmp_path: Path) -> None:
    error = refused(job(tmp_path, [[collective(1, 1, kind=10)]] * 2), UnsupportedError)
    assert "node 1 'c1' (at byte 8) is a collective of type 10" in error.message


def test_durations_that_are_not_there(tmp_path: Path) -> None:
    silent = Node(number=1, name="k1", kind=NodeType.COMPUTE, attributes={"num_ops": 5, "tensor_size": 5})
    with pytest.raises(UnsupportedError, match=r"rank 0's node 1 'k1' \(at byte 8 of .*\) has no duration to replay"):
        predict(job(tmp_path, [[silent]]), on="dgx-h100", durations="trace")


def test_one_attribute_with_two_values(tmp_path: Path) -> None:
    header = trace_bytes([])
    said = [bytes_field(10, text_field(1, "comm_size") + number_field(9, value)) for value in (4, 5)]
    inside = b"".join([number_field(1, 1), number_field(3, 7), *said])
    (tmp_path / "job.0.et").write_bytes(header + varint(len(inside)) + inside)
    error = refused(tmp_path / "job.0.et")
    assert (
        "in node 0 of the file, counted from 0, which begins at byte 8: attribute 'comm_size' of a node is 4 and 5"
        in error.message
    )


def test_groups_and_devices_that_are_said_twice(tmp_path: Path) -> None:
    prefix = job(tmp_path, [[compute(1, 1)]] * 2)
    (tmp_path / "job.comm_groups.json").write_text('{"1": [0], "1": [1]}')
    assert "'1' is in one object twice" in refused(prefix).message
    (tmp_path / "job.comm_groups.json").unlink()
    for rank, device in enumerate(("h100-sxm", "a100-sxm-80gb")):
        (tmp_path / f"job.{rank}.et").write_bytes(trace_bytes([compute(1, 1)], metadata={"device": device}))
    assert "is of device a100-sxm-80gb, and ranks before it are of h100-sxm" in refused(prefix).message


def test_groups_that_are_come_to_in_different_orders(tmp_path: Path) -> None:
    ranks = [[collective(1, 1, pg_name=first), collective(2, 1, 1, pg_name=last)] for first, last in ("ab", "ba")]
    said = refused(job(tmp_path, ranks, {"a": [0, 1], "b": [0, 1]})).message
    assert said.startswith("deadlock: 4 nodes of ranks 0-1 wait for each other in a circle")


def test_a_type_below_zero_is_shown_as_it_was_written(tmp_path: Path) -> None:
    content = number_field(1, 1) + number_field(3, -1)
    (tmp_path / "job.0.et").write_bytes(trace_bytes([]) + varint(len(content)) + content)
    assert "has type -1, and types go from 0 to 7" in refused(tmp_path / "job").message
    (tmp_path / "job.0.et").write_bytes(varint(len(content)) + content)  # of v0.0.1
    assert "has type -1, and types of v0.0.1 go from 0 to" in refused(tmp_path / "job").message


def test_a_node_without_a_type_is_passed_over(tmp_path: Path) -> None:
    """Type 0 is INVALID_NODE; ASTRA-sim goes on with what waits for it."""
    invalid = Node(number=2, name="x", kind=NodeType.INVALID, data_deps=(1,), duration_us=7)
    found = predict(job(tmp_path, [[compute(1, 10), invalid, compute(3, 5, 2)]]), on="dgx-h100")
    assert found.step_time_s == pytest.approx(15e-6)
    assert any("INVALID_NODE) are passed over, as ASTRA-sim does: 1" in said for said in found.warnings)


@pytest.mark.parametrize(("channels", "said"), [(-1, "-1 channels"), (2, "and not on 2")])
def test_channels_are_the_trace_s_own_or_one(tmp_path: Path, channels: int, said: str) -> None:
    target = job(tmp_path, [[compute(1, 1)]])
    assert predict(target, on="dgx-h100", channels=0).step_time_s == pytest.approx(1e-6)
    with pytest.raises(UsageError, match=said) as raised:
        predict(target, on="dgx-h100", channels=channels)
    assert str(raised.value.fix).startswith(("0, the default", "0 (one for each group)"))


def test_a_trace_of_no_device_says_that_all_devices_are_alike_to_it(tmp_path: Path) -> None:
    target = job(tmp_path, [[compute(1, 1)]])
    (said,) = (w for w in predict(target, on="dgx-a100").warnings if "does not name its device" in w)
    assert "--on a100-sxm-80gb does not change it; --durations estimated works it out" in said
    estimated = predict(target, on="dgx-a100", durations="estimated")
    assert not any("does not name its device" in w for w in estimated.warnings)
    silent = predict(job(tmp_path, [[compute(1, 1, num_ops=0, tensor_size=0)]]), on="dgx-a100")
    assert any("does not name its device" in w and "neither operations nor bytes" in w for w in silent.warnings)
    (tmp_path / "job.0.et").write_bytes(trace_bytes([compute(1, 1)], metadata={"device": "a100-sxm-80gb"}))
    assert not any("does not name its device" in w for w in predict(target, on="dgx-a100").warnings)


def test_a_recorded_trace_is_of_the_device_that_its_driver_names(tmp_path: Path) -> None:
    target = job(tmp_path, [[compute(1, 1)]])
    (tmp_path / "job.0.et").write_bytes(trace_bytes([compute(1, 1)], metadata={"recorded_on": "NVIDIA A100-SXM4-80GB"}))
    at_home = predict(target, on="dgx-a100")
    assert not any("its device" in w or "a100" in w for w in at_home.warnings)
    assert at_home.provenance.measured == 1.0
    assert any("recorded on a100-sxm-80gb, times what" in w for w in predict(target, on="h200").warnings)
    replayed = predict(target, on="h200", durations="trace")
    assert any("of a100-sxm-80gb: --on h200 does not change them" in w for w in replayed.warnings)
    (tmp_path / "job.0.et").write_bytes(trace_bytes([compute(1, 1)], metadata={"recorded_on": "A GPU"}))
    assert any("of 'A GPU', which the catalogue has not" in w for w in predict(target, on="dgx-a100").warnings)
