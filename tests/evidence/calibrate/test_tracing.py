from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from meshcast.evidence.calibrate.tracing import Event, LaunchTrace, add_profile, busy_us, summarise


@dataclass
class _Event:
    name: str
    start_ns: float
    duration_ns: float
    stats: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Named:
    name: str
    lines: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)


def _launch(kernel: str, at: float, took: float, module: str = "", op: str = "") -> _Event:
    stats = [("hlo_module", module), ("hlo_op", op)] if module else []
    return _Event(kernel, at, took, stats)


def _profile(*events: _Event) -> Any:
    gpu = _Named("/device:GPU:0", lines=[_Named("Stream #13", events=list(events)), _Named("XLA Ops", events=[None])])
    host = _Named("/host:CPU", lines=[_Named("Stream of calls", events=[_launch("x", 0, 9, "jit_probe_1")])])

    @dataclass
    class Data:
        planes: list[Any]

    return Data([host, gpu])


def test_launches_go_to_the_module_they_name() -> None:
    trace = LaunchTrace()
    add_profile(
        _profile(
            _launch("MemcpyH2D", 0, 5),
            _launch("fill", 10, 5, "jit_fill_1", "iota"),
            _launch("gemm", 20, 5, "jit_probe_1", "dot.1"),
            _launch("Memset", 30, 5, "jit_probe_12.7", "custom-call.1"),
            _launch("other", 40, 5, "jit__square", "dot"),
            _launch("nameless", 50, 5),
        ),
        trace,
    )
    assert trace.has_device
    assert {number: [e.kernel for e in events] for number, events in trace.events.items()} == {
        1: ["gemm"],
        12: ["Memset"],
    }


def test_nameless_launches_follow_their_fill_where_nothing_is_named() -> None:
    trace = LaunchTrace()
    add_profile(
        _profile(
            _launch("fill", 0, 5, "jit_fill_3"),
            _launch("a", 10, 5),
            _launch("fill", 20, 5, "jit_fill_4"),
            _launch("b", 30, 5),
            _launch("c", 40, 5, "jit_probe_4"),
        ),
        trace,
    )
    assert [e.kernel for e in trace.events[3]] == ["a"]
    assert [e.kernel for e in trace.events[4]] == ["c"]


def test_busy_time_counts_overlap_once() -> None:
    events = [Event(start=0, end=4000, op="", kernel=""), Event(start=1000, end=5000, op="", kernel="")]
    assert busy_us(events) == 5.0
    assert busy_us([*events, Event(start=9000, end=10000, op="", kernel="")]) == 6.0


def _runs(*durations_us: tuple[float, float]) -> list[Event]:
    events, now = [], 0.0
    for pair in durations_us:
        for kernel, us in zip("ab", pair, strict=True):
            events.append(Event(start=now, end=now + us * 1e3, op=f"op.{kernel}", kernel=kernel))
            now += us * 1e3 + 500
    return events


def test_the_median_of_the_last_runs() -> None:
    busy, kernels, even = summarise(_runs((90, 90), (1, 2), (3, 2), (50, 2)), runs=4, kept=3)
    assert even
    assert busy == 5.0  # of 3, 5 and 52; the warm-up does not count
    assert kernels == [
        {"hlo_op": "op.a", "kernel": "a", "count": 1.0, "us": 3.0},
        {"hlo_op": "op.b", "kernel": "b", "count": 1.0, "us": 2.0},
    ]


def test_runs_that_cannot_be_told_apart_are_averaged() -> None:
    busy, kernels, even = summarise(_runs((1, 2), (3, 2))[:3], runs=2, kept=1)
    assert not even
    assert busy == 3.0  # 1 + 2 + 3 over two runs
    assert {row["kernel"]: row["count"] for row in kernels} == {"a": 1.0, "b": 0.5}
