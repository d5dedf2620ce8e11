from __future__ import annotations

from meshcast.calibrate.agenda import MOST_QUICK, PLAIN, QUICK, SLOW, Agenda
from meshcast.calibrate.probe import Probe, probe
from meshcast.calibrate.suite import is_slow, suite


def _taken(agenda: Agenda) -> list[list[Probe]]:
    batches = []
    while batch := agenda.take():
        batches.append(batch)
    return batches


def test_every_probe_has_its_turn_once() -> None:
    probes = suite()
    for platform in ("gpu", "cpu"):
        batches = _taken(Agenda(probes, platform))
        assert sorted(item.id for batch in batches for item in batch) == sorted(item.id for item in probes)


def test_a_gpu_batch_mixes_slow_and_quick_ones() -> None:
    batch = Agenda(suite(), "gpu").take()
    assert [is_slow(item) for item in batch] == [True] * SLOW + [False] * QUICK
    assert len(Agenda(suite(), "cpu").take()) == PLAIN


def test_the_pace_brings_all_quick_ones_in_time() -> None:
    probes = [probe("rows", n=i) for i in range(1000)] + [probe("gemm", n=i) for i in range(1000)]
    agenda = Agenda(probes, "gpu")
    agenda.take()
    agenda.paced(50, 500)  # six batches' worth of time for 920
    assert len(agenda.take()) == SLOW + -(-920 // 6)
    agenda.paced(500, 500)
    assert len(agenda.take()) == SLOW + MOST_QUICK


def test_suspects_come_last_and_alone() -> None:
    probes = [probe("rows", n=i) for i in range(5)]
    batches = _taken(Agenda(probes, "gpu", {probes[1].id, probes[3].id}))
    assert batches == [[probes[0], probes[2], probes[4]], [probes[1]], [probes[3]]]
