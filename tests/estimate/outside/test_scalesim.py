"""SCALE-Sim as a process: the real one where it is installed, and processes that behave badly."""

from __future__ import annotations

import random
import stat
import sys
from pathlib import Path

import pytest

from meshcast.base.cache import cache_folder
from meshcast.base.errors import UnsupportedError
from meshcast.base.progress import listening
from meshcast.estimate.outside.environment import SCALESIM
from meshcast.estimate.outside.scalesim import simulate_by_scalesim
from meshcast.estimate.systolic import ArrayBuffer, Layer, SystolicArray, simulate

SMALL = ArrayBuffer(words=1024, bandwidth=4)
ARRAY = SystolicArray(rows=4, columns=3, dataflow="ws", ifmap=SMALL, filter=SMALL, ofmap=SMALL)
INSTALLED = SCALESIM.release() is not None
needs_scalesim = pytest.mark.skipif(
    not INSTALLED, reason="SCALE-Sim is not installed (make test does it; or meshcast doctor --install scalesim)"
)


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of the test's own, SCALE-Sim's environment as before."""
    if SCALESIM.python is not None:
        monkeypatch.setenv(SCALESIM.variable, str(SCALESIM.python))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def pretended(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that says it has SCALE-Sim, and runs something else instead."""
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncase $2 in -c) echo 3.0.0; exit 0;; esac\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(SCALESIM.variable, str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


REPORT = (
    "mkdir -p out/meshcast; printf 'LayerID, a, b, c, d, e, f,\\n0, 30, 20, 5, 50.0, 60.0, 70.0,\\n'"
    " > out/meshcast/COMPUTE_REPORT.csv"
)


@needs_scalesim
@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("dataflow", ["ws", "os", "is"])
def test_random_layers_have_the_same_cycles_and_stalls(dataflow: str) -> None:
    chosen = random.Random(dataflow)
    layers = [Layer.gemm(*(chosen.randint(1, 60) for _ in range(3)), name="product")]
    height, width = chosen.randint(4, 12), chosen.randint(4, 12)
    layers.append(
        Layer(
            name="convolution", ifmap_height=height, ifmap_width=width, filter_height=chosen.randint(1, 4),
            filter_width=chosen.randint(1, 4), channels=chosen.randint(1, 16), filters=chosen.randint(1, 20),
            stride=chosen.randint(1, 3),
        )
    )  # fmt: skip
    target = SystolicArray(
        rows=chosen.randint(2, 12), columns=chosen.randint(2, 12), dataflow=dataflow,  # type: ignore[arg-type]
        ifmap=SMALL, filter=SMALL, ofmap=SMALL,
    )  # fmt: skip
    for ours, theirs in zip(simulate(layers, target), simulate_by_scalesim(layers, target), strict=True):
        assert ours.name == theirs.name
        assert (ours.compute_cycles, ours.stall_cycles, ours.total_cycles, ours.cycles_with_prefetch) == (
            theirs.compute_cycles, theirs.stall_cycles, theirs.total_cycles, theirs.cycles_with_prefetch,
        )  # fmt: skip
        assert (ours.utilisation, ours.mapping_efficiency, ours.compute_utilisation) == pytest.approx(
            (theirs.utilisation, theirs.mapping_efficiency, theirs.compute_utilisation)
        )


def test_equal_layers_run_once_and_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs"
    pretended(tmp_path, f"echo run >> {runs}; {REPORT}", monkeypatch)
    layers = [Layer.gemm(5, 6, 7, name="a"), Layer.gemm(5, 6, 7, name="b"), Layer.gemm(5, 6, 8, name="c")]
    heard: list[str] = []
    with listening(heard.append):
        results = simulate_by_scalesim(layers, ARRAY)
    assert [result.name for result in results] == ["a", "b", "c"]
    assert (results[0].compute_cycles, results[0].stall_cycles, results[0].utilisation) == (15, 5, 0.5)
    assert heard[-1] == "SCALE-Sim: 2 of 2 layers done"
    assert simulate_by_scalesim(layers, ARRAY) == results
    assert runs.read_text().count("run") == 2


@pytest.mark.parametrize("damage", ["", '{"name": "", "compute_cyc', "[]", "{}", "null", "\x00"])
def test_a_damaged_answer_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    runs = tmp_path / "runs"
    pretended(tmp_path, f"echo run >> {runs}; {REPORT}", monkeypatch)
    layers = [Layer.gemm(5, 6, 7)]
    results = simulate_by_scalesim(layers, ARRAY)
    (entry,) = cache_folder("scalesim").glob("*.json")
    entry.write_text(damage)
    assert simulate_by_scalesim(layers, ARRAY) == results
    assert runs.read_text().count("run") == 2
    assert simulate_by_scalesim(layers, ARRAY) == results  # mended
    assert runs.read_text().count("run") == 2


def test_a_failing_layer_is_named_and_finished_ones_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fails = f"if grep -q ' 9, 1, 9,' topology.csv; then sleep 0.3; echo 'no such thing'; exit 3; fi; {REPORT}"
    pretended(tmp_path, fails, monkeypatch)
    with pytest.raises(UnsupportedError, match=r"5 x 9 by 9 x 6: no such thing \| exit code 3"):
        simulate_by_scalesim([Layer.gemm(5, 6, 7), Layer.gemm(5, 6, 9)], ARRAY)
    assert len(list(cache_folder("scalesim").glob("*.json"))) == 1


def test_a_process_that_dies_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(tmp_path, "kill -9 $$", monkeypatch)
    with pytest.raises(UnsupportedError, match="exit code -9"):
        simulate_by_scalesim([Layer.gemm(5, 6, 7)], ARRAY)


def test_a_report_that_cannot_be_read_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(tmp_path, REPORT.replace("20, 5", "twenty, 5"), monkeypatch)
    with pytest.raises(UnsupportedError, match="no report"):
        simulate_by_scalesim([Layer.gemm(5, 6, 7)], ARRAY)


def test_without_scale_sim_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SCALESIM.variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnsupportedError, match="not installed") as caught:
        simulate_by_scalesim([Layer.gemm(5, 6, 7)], ARRAY)
    assert "meshcast doctor --install scalesim" in str(caught.value)
    monkeypatch.setenv(SCALESIM.variable, sys.executable if not _has_scalesim() else "/no/such/python")
    with pytest.raises(UnsupportedError, match=SCALESIM.variable):
        simulate_by_scalesim([Layer.gemm(5, 6, 7)], ARRAY)


def _has_scalesim() -> bool:
    from importlib.util import find_spec

    return find_spec("scalesim") is not None


def test_a_layer_too_large_for_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended(tmp_path, REPORT, monkeypatch)
    with pytest.raises(UnsupportedError, match=r"limit is 3e.08"):
        simulate_by_scalesim([Layer.gemm(10**6, 10**6, 10**6)], ARRAY)
