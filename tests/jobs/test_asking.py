"""The stages joined: what is kept between predictions, and what that may never change."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import Options, predict, prepare, zoo
from meshcast.base import once
from meshcast.base.errors import UsageError
from meshcast.jobs.program import lowering
from meshcast.partition import partition
from meshcast.programs import capture
from meshcast.workload.custom_calls import register_custom_call
from meshcast.workload.graph import Cost, OpKind

LOOP = """
func.func public @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = stablehlo.while(%y = %x) : tensor<64x64xf32>
    cond {
      %s = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %s : tensor<i1>
    } do {
      %z = stablehlo.dot_general %y, %y, contracting_dims = [1] x [0]
        : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      stablehlo.return %z : tensor<64x64xf32>
    }
  return %0 : tensor<64x64xf32>
}"""
CALL = """
func.func public @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.custom_call @pipeline_test_call(%x) : (tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}"""


def test_the_same_program_is_lowered_once(tmp_path: Path) -> None:
    first, second = tmp_path / "first.mlir", tmp_path / "second.mlir"
    first.write_text(LOOP)
    second.write_text(LOOP)
    options = Options(on="h200", trip_counts={"*": 3})
    one, two = prepare(first, options), prepare(second, options)
    assert one.lowered.schedule is two.lowered.schedule
    assert (one.workload.name, two.workload.name) == ("first", "second")


def test_what_shapes_a_program_is_part_of_its_key(tmp_path: Path) -> None:
    path = tmp_path / "loop.mlir"
    path.write_text(LOOP)
    three, six = (predict(path, on="h200", trip_counts={"*": n}, fidelity="roofline") for n in (3, 6))
    assert six.flops == 2 * three.flops


def test_a_rule_registered_later_counts(tmp_path: Path) -> None:
    path = tmp_path / "call.mlir"
    path.write_text(CALL)
    guessed = predict(path, on="h200", approximate=True)
    register_custom_call("pipeline_test_call", lambda reading: Cost(kind=OpKind.CUSTOM, dtype="f32", vector_flops=1e9))
    assert guessed.flops == 0
    assert predict(path, on="h200", approximate=True).flops == 1e9


def test_a_program_partitioned_by_hand_is_not_taken_for_its_source() -> None:
    function, arguments, options = zoo.build("gpt2-tiny", mesh={"data": 4, "tensor": 2})
    program = capture(function, *arguments, name="gpt", options=options)
    assert predict(program, on="dgx-h100").devices == 8
    for mesh, devices in (({"data": 2, "tensor": 2}, 4), ({"data": 1, "tensor": 1}, 1)):
        assert predict(partition(program, mesh=mesh), on="dgx-h100").devices == devices
    merged, raw = (predict(partition(program, optimise=flag), on="dgx-h100") for flag in (True, False))
    assert raw.communication_bytes > merged.communication_bytes


def test_few_programs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(once._kept, "programs", 2)
    path = tmp_path / "loop.mlir"
    path.write_text(LOOP)
    for trips in range(1, 6):
        predict(path, on="h200", trip_counts={"*": trips})
    assert len(lowering._LOWERED) == 2


def test_durations_are_of_traces() -> None:
    with pytest.raises(UsageError, match="this is no trace") as caught:
        predict("mlp-tiny", on="h200", durations="trace")
    assert caught.value.where == "--durations"


def test_several_devices_are_compared() -> None:
    with pytest.raises(UsageError, match="are several") as caught:
        predict("mlp-tiny", on="h200,h100-sxm")
    assert "compare TARGET --on h200,h100-sxm" in str(caught.value.fix)


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(UsageError, match="no setting 'fidelty'"):
        predict("x.mlir", fidelty="roofline")  # type: ignore[call-arg]


SCATTER = """
func.func public @main(%t: tensor<10000x128xf32>, %i: tensor<65536x1xi32>, %u: tensor<65536x128xf32>) -> tensor<10000x128xf32> {
  %0 = "stablehlo.scatter"(%t, %i, %u) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>,
    unique_indices = false}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<10000x128xf32>, tensor<65536x1xi32>, tensor<65536x128xf32>) -> tensor<10000x128xf32>
  return %0 : tensor<10000x128xf32>
}
"""


def test_skewed_indices_cost_more_and_are_not_mixed_up_with_uniform_ones(tmp_path: Path) -> None:
    path = tmp_path / "scatter.mlir"
    path.write_text(SCATTER)
    times = [
        predict(path, on="h200", fidelity="analytical", indices=indices).step_time_s or 0.0
        for indices in ("uniform", "zipf:1.05", "zipf:0", "uniform")
    ]
    assert times[1] > 1.5 * times[0] > 0
    assert times[0] == times[2] == times[3]


@pytest.mark.parametrize("text", ["zipf", "zipf:-1", "zipf:nan", "normal", "uniform:2"])
def test_an_unknown_spread_of_indices_is_the_users_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="no spread of indices"):
        Options(indices=text)
