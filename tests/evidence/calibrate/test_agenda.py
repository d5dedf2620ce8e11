from __future__ import annotations

from collections import Counter

from meshcast.evidence.calibrate.agenda import GUESSED_S, LONG_EVERY, MOST_QUICK, PLAIN, SIZES, Agenda
from meshcast.evidence.calibrate.probe import Probe, probe
from meshcast.evidence.calibrate.suite import Compiling, compiling, probe_suite

LONG, TUNED, QUICK = Compiling.LONG, Compiling.TUNED, Compiling.QUICK


def _taken(agenda: Agenda) -> list[list[Probe]]:
    batches = []
    while batch := agenda.take(1e6):
        batches.append(batch)
    return batches


def _kinds(batch: list[Probe]) -> Counter[Compiling]:
    return Counter(map(compiling, batch))


def test_every_probe_has_its_turn_once() -> None:
    probes = probe_suite()
    for platform in ("gpu", "cpu"):
        batches = _taken(Agenda(probes, platform))
        assert sorted(item.id for batch in batches for item in batch) == sorted(item.id for item in probes)


def test_what_takes_long_to_compile_is_put_together() -> None:
    batches = _taken(Agenda(probe_suite(), "gpu"))
    assert compiling(batches[0][0]) is TUNED  # started first
    assert _kinds(batches[0]) == {TUNED: SIZES[TUNED], QUICK: SIZES[QUICK]}
    assert _kinds(batches[LONG_EVERY - 1]) == {LONG: SIZES[LONG], QUICK: SIZES[QUICK]}
    assert not any(_kinds(batch)[LONG] and _kinds(batch)[TUNED] for batch in batches)
    assert len(Agenda(probe_suite(), "cpu").take(1e6)) == PLAIN


def test_the_pace_brings_all_quick_ones_in_time() -> None:
    probes = [probe("rows", n=i) for i in range(1000)] + [probe("gemm", n=i) for i in range(1000)]
    agenda = Agenda(probes, "gpu")
    agenda.take(1e6)
    agenda.took(50, 500)  # six batches' worth of time for 920
    assert _kinds(agenda.take(1e6))[QUICK] == -(-920 // 6)
    agenda.took(500, 500)
    assert _kinds(agenda.take(1e6))[QUICK] == MOST_QUICK


def test_what_would_not_end_in_time_does_not_begin() -> None:
    probes = [probe("rows", n=i) for i in range(500)] + [probe("gemm", n=i) for i in range(500)]
    agenda = Agenda(probes, "gpu")
    assert set(_kinds(agenda.take(GUESSED_S[TUNED]))) == {QUICK}
    assert set(_kinds(agenda.take(GUESSED_S[TUNED] + 1))) == {TUNED, QUICK}
    agenda.took(70, 200)
    assert set(_kinds(agenda.take(60))) == {QUICK}  # a batch of tuned ones took 70
    assert set(_kinds(agenda.take(80))) == {TUNED, QUICK}
    assert agenda.take(0) == []


def test_suspects_come_last_and_alone() -> None:
    probes = [probe("rows", n=i) for i in range(5)]
    batches = _taken(Agenda(probes, "gpu", {probes[1].id, probes[3].id}))
    assert batches == [[probes[0], probes[2], probes[4]], [probes[1]], [probes[3]]]
