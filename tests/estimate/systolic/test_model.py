"""The systolic model by hand, against SCALE-Sim's reports, and against a walk word by word."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.estimate.systolic import ArrayBuffer, Layer, SystolicArray, simulate
from meshcast.estimate.systolic.cycles import compute_cycles
from meshcast.estimate.systolic.layer import product_shapes
from meshcast.estimate.systolic.ring import Ring
from meshcast.estimate.systolic.scratchpads import Lie, ReadBuffer, layer_stalls
from meshcast.estimate.systolic.windows import WindowStream, window_addresses
from tests.estimate.systolic.reports import Report, reports

LARGE = ArrayBuffer(words=2**22, bandwidth=10)


def array(rows: int, columns: int, dataflow: str, buffer: ArrayBuffer = LARGE) -> SystolicArray:
    return SystolicArray(
        rows=rows, columns=columns, dataflow=dataflow, ifmap=buffer, filter=buffer, ofmap=buffer,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dataflow", "folds", "fold"),
    [
        # M, N, K = 10, 7, 5 on 4 x 3 cells
        ("ws", 2 * 3, 2 * 4 + 3 + 10 - 2),
        ("is", 2 * 4, 2 * 4 + 3 + 7 - 2),
        ("os", 3 * 3, 4 + 3 + 5 - 2),
    ],
)
def test_cycles_of_a_product_by_hand(dataflow: str, folds: int, fold: int) -> None:
    (result,) = simulate([Layer.gemm(10, 7, 5)], array(4, 3, dataflow))
    assert result.compute_cycles == folds * fold - 1
    assert (result.stall_cycles, result.total_cycles) == (0, result.compute_cycles)
    assert result.utilisation == pytest.approx(350 / (12 * result.compute_cycles))


def test_a_product_smaller_than_the_array_takes_a_whole_fold() -> None:
    (result,) = simulate([Layer.gemm(1, 1, 1)], array(8, 4, "ws"))
    assert result.compute_cycles == 2 * 8 + 4 + 1 - 2 - 1
    assert result.mapping_efficiency == pytest.approx(1 / 32)


def test_a_single_cell_multiplies_in_cycle_0() -> None:
    (result,) = simulate([Layer.gemm(1, 1, 1)], array(1, 1, "os"))
    assert (result.compute_cycles, result.utilisation) == (0, 1.0)


@pytest.mark.parametrize(
    ("sizes", "windows"),
    [
        ((7, 7, 3, 3, 2, 4, 2), 9),
        ((8, 8, 3, 3, 2, 4, 2), 16),  # the last window hangs over the edge
        ((5, 5, 5, 5, 1, 1, 3), 1),  # as large as the map
        ((2, 2, 1, 1, 1, 1, 4), 4),  # the last one lies outside altogether
    ],
)
def test_windows_are_counted_as_scale_sim_does(sizes: tuple[int, ...], windows: int) -> None:
    names = ("ifmap_height", "ifmap_width", "filter_height", "filter_width", "channels", "filters", "stride")
    given: dict[str, Any] = dict(zip(names, sizes, strict=True))
    layer = Layer(**given)
    assert layer.m == windows
    assert layer.window_elements == np.count_nonzero(window_addresses(layer) >= 0)


def test_a_filter_larger_than_the_map_is_refused() -> None:
    with pytest.raises(UsageError, match="larger than the map"):
        Layer(ifmap_height=3, ifmap_width=3, filter_height=4, filter_width=1, channels=1, filters=1)


def test_thousands_of_layers_at_once_equal_one_by_one() -> None:
    chosen = random.Random(0)
    layers = [Layer.gemm(*(chosen.randint(1, 5000) for _ in range(3))) for _ in range(2000)]
    target = array(128, 64, "ws")
    together = compute_cycles(*product_shapes(layers), target)
    assert together.tolist() == [
        -(-layer.k // 128) * -(-layer.n // 64) * (2 * 128 + 64 + layer.m - 2) - 1 for layer in layers
    ]


REPORTS = reports()


def test_every_report_of_scale_sim_is_met_exactly() -> None:
    wrong = [report for report in REPORTS if _answer(report) != (report.cycles, report.cycles_with_prefetch)]
    assert not wrong
    assert sum(report.cycles[1] > 0 for report in REPORTS) > 100  # stalls are among them


def _answer(report: Report) -> tuple[tuple[int, int, int], int]:
    (result,) = simulate([report.layer], report.array)
    assert (result.utilisation, result.mapping_efficiency, result.compute_utilisation) == pytest.approx(report.shares)
    estimated = report.cycles_with_prefetch  # not modelled where SCALE-Sim estimates the bandwidth itself
    return (
        (result.compute_cycles, result.stall_cycles, result.total_cycles),
        estimated if result.cycles_with_prefetch is None else result.cycles_with_prefetch,
    )


def test_layers_that_fit_are_answered_in_closed_form_as_by_walking() -> None:
    fit = [report for report in REPORTS if not report.cycles[1] and not report.array.estimated_bandwidth]
    for report in fit:
        use = layer_stalls(report.layer, report.array)
        (result,) = simulate([report.layer], report.array)
        assert (use.stall_cycles, use.total_cycles, use.with_prefetch) == (
            result.stall_cycles, result.total_cycles, result.cycles_with_prefetch,
        )  # fmt: skip


def test_intervals_of_words_miss_where_single_words_do() -> None:
    """The closed form of products against the walk for convolutions, with scratchpads of a few words."""
    chosen = random.Random(5)
    missed = 0
    for _ in range(600):
        buffer = ArrayBuffer(words=chosen.choice([2, 10, 30, 99, 150, 201, 400]), bandwidth=3)
        target = array(chosen.randint(1, 9), chosen.randint(1, 9), chosen.choice(["ws", "os", "is"]), buffer)
        layer = Layer.gemm(*(chosen.randint(1, 30) for _ in range(3)))
        lie = Lie.of(layer, target)
        read = ReadBuffer.of("ifmap", layer, target, lie)
        cycles, moves = read.refills(lie)
        read.stream = WindowStream(buffer=buffer, layer=layer, array=target)
        assert (cycles.tolist(), moves.tolist()) == tuple(part.tolist() for part in read.refills(lie))
        missed += len(cycles) > 0
    assert missed > 300


def test_the_window_goes_round_the_ring() -> None:
    ring = Ring.of(ArrayBuffer(words=200, bandwidth=1), 40)  # groups of 2 words, of which 50 are inside
    assert (ring.groups, ring.active, ring.step) == (21, 21, 0)
    ring = Ring.of(ArrayBuffer(words=20, bandwidth=1), 30)  # of one word: 10 inside, 10 move
    assert (ring.groups, ring.active, ring.step) == (31, 10, 10)
    assert [ring.moves(0, group) for group in (0, 9, 10, 19, 20, 30)] == [0, 0, 1, 1, 2, 3]
    assert ring.moves(10, 9) == 3
    assert ring.moved(30, 1) == 9


def test_more_bandwidth_never_stalls_longer_and_more_memory_never_needs_more_of_it() -> None:
    layer = Layer.gemm(100, 60, 80)
    for dataflow in ("ws", "os", "is"):
        rates = [
            simulate([layer], array(8, 8, dataflow, ArrayBuffer(words=1024, bandwidth=rate)))[0].stall_cycles
            for rate in (1, 4, 16, 1024)
        ]
        assert rates == sorted(rates, reverse=True)
        sizes = [
            simulate([layer], array(8, 8, dataflow, ArrayBuffer(words=words, bandwidth=2)))[0].stall_cycles
            for words in (1024, 2**20)
        ]
        assert sizes[0] > 0
        assert sizes[1] == 0


@pytest.mark.parametrize("words", [0, 1])
def test_a_scratchpad_that_cannot_be_halved_is_refused(words: int) -> None:
    with pytest.raises(UsageError, match="double-buffered"):
        ArrayBuffer(words=words, bandwidth=1)


def test_without_a_bandwidth_size_does_not_matter() -> None:
    free = replace(array(128, 128, "ws", ArrayBuffer(words=512, bandwidth=1)), estimated_bandwidth=True)
    (result,) = simulate([Layer.gemm(65536, 65536, 65536)], free)
    assert (result.compute_cycles, result.stall_cycles) == (512 * 512 * (2 * 128 + 128 + 65536 - 2) - 1, 0)


def test_what_cannot_be_counted_or_walked_is_refused() -> None:
    with pytest.raises(UsageError, match="more than cycles can be counted for"):
        simulate([Layer.gemm(10**9, 10**9, 10**9)], array(8, 8, "ws"))
    with pytest.raises(UnsupportedError, match="would be walked for minutes"):
        simulate([Layer.gemm(32768, 32768, 32768)], array(128, 128, "ws", ArrayBuffer(words=4096, bandwidth=1)))
    wide = Layer(ifmap_height=56, ifmap_width=56, filter_height=3, filter_width=3, channels=65536, filters=64)
    with pytest.raises(UnsupportedError, match="addresses would be listed"):
        simulate([wide], array(8, 16, "os", ArrayBuffer(words=4096, bandwidth=1)))
