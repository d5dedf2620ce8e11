"""What if the hardware had other numbers: each alone, all together, and what `--on` gives by the same name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import Options, predict
from meshcast.base import UsageError
from meshcast.hardware import resolve
from meshcast.jobs.front import answered
from meshcast.jobs.levers import Question
from meshcast.jobs.resolve import resolve_job
from meshcast.jobs.what_ifs import with_what_ifs

STREAM = """
func.func public @main(%x: tensor<268435456xf32>) -> tensor<268435456xf32> {
  %y = stablehlo.add %x, %x : tensor<268435456xf32>
  return %y : tensor<268435456xf32>
}"""


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A program that the memory limits."""
    path = tmp_path / "stream.mlir"
    path.write_text(STREAM)
    return path


def test_each_change_alone_and_all_together_as_on_gives_them(stream: Path) -> None:
    found = predict(stream, on="h200", fidelity="roofline", what_if=("hbm=2x,launch=0.5x", "flops=2x"))
    assert [each.change for each in found.what_ifs] == ["hbm=2x", "launch=0.5x", "hbm=2x,launch=0.5x", "flops=2x"]
    assert found.what_ifs[0].speedup == pytest.approx(2, rel=0.01)
    assert found.what_ifs[3].speedup == pytest.approx(1)
    for each in found.what_ifs:
        assert each.step_time_s == predict(stream, on=each.on, fidelity="roofline").step_time_s
    assert [each["change"] for each in found.to_json()["what_if"]] == [each.change for each in found.what_ifs]
    assert "What if" in str(found)


def test_without_a_question_there_is_no_answer(stream: Path) -> None:
    assert "what_if" not in predict(stream, on="h200", fidelity="roofline").to_json()


def test_more_memory_makes_it_fit(stream: Path) -> None:
    found = predict(stream, on="h200+memory.capacity=1GiB", fidelity="roofline", what_if="capacity=4x,hbm=2x")
    assert not found.feasible
    assert [each.feasible for each in found.what_ifs] == [True, False, True]
    assert [each.step_time_s is None for each in found.what_ifs] == [False, True, False]
    assert "does not fit" in str(found)


@pytest.mark.parametrize("change", ["hbm=-2x", "hbm=fast", "hbm=-1TB/s"])
def test_a_value_that_is_none_is_told_of_the_flag_that_has_it(stream: Path, change: str) -> None:
    with pytest.raises(UsageError) as told:
        predict(stream, on="h200", fidelity="roofline", what_if=change)
    assert told.value.where == "--what-if"
    assert "hbm=1.5x" in (told.value.fix or "")


def test_hardware_without_a_name_is_refused(stream: Path) -> None:
    with pytest.raises(UsageError, match="has a name or a file"):
        predict(stream, on=resolve("h200"), what_if="hbm=2x")


def test_a_compiled_step_is_told_with_the_change_of_modelled_kernels(stream: Path) -> None:
    def again(options: Options) -> Question:
        return answered(resolve_job(stream, options))

    modelled = again(Options(on="h200", fidelity="roofline", what_if="hbm=2x"))
    timed = modelled.prediction.timed
    assert timed is not None
    slower = replace(modelled.prediction, lowering="compiled", timed=replace(timed, step_time_s=3 * timed.step_time_s))
    (found,) = with_what_ifs(replace(modelled, prediction=slower), again).what_ifs
    (plain,) = with_what_ifs(modelled, again).what_ifs
    assert found.speedup == plain.speedup
    assert found.step_time_s == pytest.approx(3 * (plain.step_time_s or 0))
    assert found.energy_j == pytest.approx(3 * (plain.energy_j or 0))
