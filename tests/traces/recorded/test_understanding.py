"""Where the time of a recording by hand goes, worked out on paper."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from meshcast import predict
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.chakra import Node, NodeType, trace_bytes
from meshcast.jobs.traced import find_traces
from meshcast.traces import Understanding, understanding_json, understood
from tests.jobs.traced.jobs import compute, job
from tests.traces.recorded.test_linking import linked

MICRO = 1e-6


@pytest.fixture
def found(tmp_path: Path) -> Understanding:
    """Rank 0: its product runs from 12 to 32 us, the collective from 42 to 62; rank 1 comes at 52, which 0 waits for."""
    return understood(find_traces(linked(tmp_path)))


def test_the_device_of_every_rank(found: Understanding) -> None:
    first, second = found.ranks
    times = [
        [each.span, each.computing, each.not_computing, each.idle, each.waited, each.late] for each in (first, second)
    ]
    assert times[0] == pytest.approx([50 * MICRO, 20 * MICRO, 20 * MICRO, 10 * MICRO, 10 * MICRO, 0])
    assert times[1] == pytest.approx([40 * MICRO, 20 * MICRO, 10 * MICRO, 10 * MICRO, 0, 10 * MICRO])
    assert first.exposed == {"all ranks": pytest.approx(20 * MICRO)}
    assert first.idle_for == {"the host": pytest.approx(10 * MICRO)}
    assert found.host_bound == pytest.approx(20 / 90)


def test_the_critical_path_goes_over_the_rank_that_comes_last(found: Understanding) -> None:
    """10 us until rank 1 begins, its host until 52, the collective until 62, the synchronisation of either until 67."""
    assert sum(seconds for _, _, seconds in found.critical) == pytest.approx(67 * MICRO)
    assert {rank for rank, step, _ in found.critical if step.does == "host" and step.name == "begins later"} == {1}
    assert found.critical_by == {
        "the host": pytest.approx(57 * MICRO),
        "collective: all-reduce": pytest.approx(10 * MICRO),
    }


def test_classes_of_kernels(found: Understanding) -> None:
    assert found.classes == {"matmul": pytest.approx(40 * MICRO), "collective: all-reduce": pytest.approx(20 * MICRO)}
    assert found.without_products == 0.0
    assert understanding_json(found)["ranks"][1]["others_waited_s"] == pytest.approx(10 * MICRO)


def test_sizes_and_dependencies(tmp_path: Path) -> None:
    """Two ranks of three kernels each, the second and third behind the first, and an all-reduce behind both."""
    nodes = [compute(1, 5, tensor_size=100), compute(2, 5, 1, tensor_size=300), compute(3, 5, 1, tensor_size=200)]
    met = Node(
        number=4, name="meet", kind=NodeType.COLLECTIVE, data_deps=(2, 3), duration_us=5,
        attributes={"comm_type": 0, "comm_size": 64, "is_cpu_op": False},
    )  # fmt: skip
    told = understanding_json(understood(find_traces(job(tmp_path, [[*nodes, met], [*nodes, met]]))))
    assert told["dependencies"] == {
        "nodes": 8, "edges": 8, "without": 2, "most_before": 2, "most_behind": 2, "longest_chain": 3,
        "abreast": pytest.approx(8 / 6),
    }  # fmt: skip
    sizes = told["sizes"]
    assert sizes["collective: all-reduce"]["total_bytes"] == 128
    (kernels,) = (row for name, row in sizes.items() if not name.startswith("collective"))
    assert kernels == {"count": 6, "least_bytes": 100, "median_bytes": 200.0, "most_bytes": 300, "total_bytes": 1200}


def test_what_has_no_durations_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="have no durations"):
        understood(find_traces(job(tmp_path, [[compute(1, 0)]])))


def test_what_would_be_if_something_took_less(tmp_path: Path) -> None:
    """A collective of 5 us ends at 57, before rank 1 comes to synchronise (60); without pauses all is 10 us earlier."""
    files = find_traces(linked(tmp_path))
    assert understood(files, {"collective": 2.0}).run.duration == pytest.approx(65 * MICRO)
    assert understood(files, {"pause": math.inf}).run.duration == pytest.approx(57 * MICRO)
    assert understood(files, {"matmul": 2.0, "delay": math.inf}).run.duration == pytest.approx(67 * MICRO)
    with pytest.raises(UsageError, match="nothing in job is 'sort'"):
        understood(files, {"sort": 2.0})


def test_what_if_lies_between_what_is_not_known(tmp_path: Path) -> None:
    """There is one collective: all of its 10 us may be latency, which no faster link takes away; the replay is exact."""
    files = find_traces(linked(tmp_path))
    changed = understood(files, {"collective": 2.0}).what_if
    assert changed is not None
    times = [changed.before, changed.after, changed.low, changed.high]
    assert times == pytest.approx([67 * MICRO, 65 * MICRO, 65 * MICRO, 67 * MICRO])
    assert understood(files).what_if is None
    said = understanding_json(understood(files, {"pause": math.inf}))["what_if"]
    assert said["faster"] == {"pause": "inf"}
    assert [said["low_s"], said["high_s"]] == pytest.approx([57 * MICRO] * 2), "a pause has no part that stays"


def test_a_delay_in_front_of_faster_work_may_shrink_with_it(tmp_path: Path) -> None:
    """One thread, one stream: a launch of 10 us, a delay of 30, a kernel of 20 that is twice as fast; no shorter than 8."""
    stream = {"stream": 1, "is_cpu_op": False}
    nodes = [
        Node(number=1, name="launch", kind=NodeType.COMPUTE, attributes={"is_cpu_op": True, "duration_ns": 10_000}),
        Node(
            number=2, name="delay", kind=NodeType.COMPUTE, data_deps=(1,),
            attributes={**stream, "op_type": "wait", "duration_ns": 30_000},
        ),
        Node(
            number=3, name="sgemm", kind=NodeType.COMPUTE, data_deps=(2,), attributes={**stream, "duration_ns": 20_000}
        ),
        Node(
            number=4, name="elementwise_kernel", kind=NodeType.COMPUTE, data_deps=(3,),
            attributes={**stream, "duration_ns": 8_000},
        ),
    ]  # fmt: skip
    (tmp_path / "job.0.et").write_bytes(trace_bytes(nodes))
    (tmp_path / "job.linked.json").write_text('{"measured_span_s": 68e-6}')
    changed = understood(find_traces(tmp_path / "job"), {"matmul": 2.0}).what_if
    assert changed is not None
    times = [changed.before, changed.after, changed.low, changed.high]
    assert times == pytest.approx([68 * MICRO, 58 * MICRO, 43 * MICRO, 62 * MICRO])


def test_communication_alone_is_worked_out_on_another_network(tmp_path: Path) -> None:
    """The last rank comes at 52 us and synchronises from 60 on, 5 us behind the collective: all else is as recorded."""
    found = predict(linked(tmp_path), on="dgx-h100", durations="network")
    assert found.timed is not None
    assert found.timed.step_time_s == pytest.approx(
        max(60 * MICRO, 52 * MICRO + found.timed.communication_s) + 5 * MICRO
    )
    assert found.timed.communication_s != pytest.approx(10 * MICRO, rel=1e-3)
    low, high = found.timed.interval_s
    assert low < found.timed.step_time_s < high
    assert 0 < found.provenance.measured < 1
