"""Loops that end on data: the step is a fixed part and so much a turn, exactly, at any count and in each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshcast import Options, predict, prepare
from meshcast.base.errors import UsageError
from meshcast.lower.kernel import Kernel, KernelKind, LoopStep, Schedule
from meshcast.simulate import AskingLoops, HostCosts
from meshcast.simulate.timeline import Breakdown, Repeat, Timeline

SQUARE = "tensor<256x256xf32>"
SUMMED = f"across dimensions = [0, 1] : ({SQUARE}, tensor<f32>) -> tensor<f32>"
PRODUCT = f"contracting_dims = [1] x [0] : ({SQUARE}, {SQUARE}) -> {SQUARE}"


def loop(result: str, start: str, body: str, *, carried: str = "y") -> str:
    """A loop that goes on while a sum of its square matrix is above a tolerance."""
    return f"""
    %{result} = stablehlo.while(%{carried} = %{start}) : {SQUARE}
    cond {{
      %sum = stablehlo.reduce(%{carried} init: %zero) applies stablehlo.add {SUMMED}
      %on = stablehlo.compare GT, %sum, %tol, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %on : tensor<i1>
    }} do {{
      {body}
    }}"""


def program(body: str, given: str) -> str:
    return f"""
func.func public @main(%x: {SQUARE}, %tol: tensor<f32>) -> {SQUARE} {{
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.dot_general %x, %x, {PRODUCT}
  {body}
  return %{given} : {SQUARE}
}}"""


def squared(name: str, of: str) -> str:
    return f"%{name} = stablehlo.dot_general %{of}, %{of}, {PRODUCT}"


ONE = program(loop("r", "p", f"{squared('z', 'y')}\n stablehlo.return %z : {SQUARE}"), "r")
INNER = loop("w", "t", f"{squared('v', 'u')}\n stablehlo.return %v : {SQUARE}", carried="u")
NESTED = program(loop("r", "p", f"%t = stablehlo.tanh %y : {SQUARE}\n {INNER}\n stablehlo.return %w : {SQUARE}"), "r")
TWO = program(
    loop("r", "p", f"{squared('z', 'y')}\n stablehlo.return %z : {SQUARE}")
    + loop("q", "r", f"%t = stablehlo.tanh %u : {SQUARE}\n stablehlo.return %t : {SQUARE}", carried="u"),
    "q",
)
SENDING = f"""
module @sending attributes {{mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32}} {{
{
    program(
        loop(
            "r",
            "p",
            f'''%z = "stablehlo.all_reduce"(%y) ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %c : tensor<f32>
        }}) {{replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}} : ({SQUARE}) -> {SQUARE}
        stablehlo.return %z : {SQUARE}''',
        ),
        "r",
    )
}
}}"""


@pytest.fixture(params=["roofline", "analytical", "profiled"])
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Predicts a text with turns; without levers, by kernels of ours."""

    def ask(text: str, **turns: Any) -> Any:
        path = tmp_path / "loop.mlir"
        path.write_text(text)
        given = {name.replace("_", "#"): each for name, each in turns.items()}
        return predict(path, on="h200", fidelity=request.param, lowering="modelled", trip_counts=given)

    return ask


def test_a_step_is_a_fixed_part_and_so_much_a_turn(asked: Any) -> None:
    """The line of one turn holds at every other count: time, energy above idle, launches."""
    one = asked(ONE)
    found = one.to_json()
    (share,) = found["loops"]
    assert (share["name"], share["turns"], share["turns_assumed"]) == ("while#1", 1, True)
    fixed, turn = found["step_time_fixed_s"], share["per_turn_s"]
    assert fixed > 0
    assert turn > 0
    assert found["step_time_s"] == pytest.approx(fixed + turn, rel=1e-12)
    for turns in (2, 17, 400):
        other = asked(ONE, while_1=turns)
        assert other.step_time_s == pytest.approx(fixed + turn * turns, rel=1e-9)
        assert other.loops.fixed_s == pytest.approx(fixed, rel=1e-6)
        assert other.energy_j == pytest.approx(one.energy_j + (turns - 1) * share["per_turn_energy_j"], rel=1e-3)
        assert not other.to_json()["loops"][0]["turns_assumed"]
    assert asked(ONE, while_1=3).kernels - asked(ONE, while_1=2).kernels == asked(ONE, while_1=2).kernels - one.kernels


def test_turns_of_loops_in_each_other_multiply(asked: Any) -> None:
    found = asked(NESTED)
    outer, inner = found.loops.loops
    assert (outer.inside, inner.inside, inner.entered) == ((), ("while#1",), 1)
    for n, m in ((1, 5), (6, 1), (4, 9)):
        other = asked(NESTED, while_1=n, while_2=m)
        line = found.loops.fixed_s + n * outer.per_turn_s + n * m * inner.per_turn_s
        assert other.step_time_s == pytest.approx(line, rel=1e-9)
        assert [share.entered for share in other.loops.loops] == [1, n]
    assert "while#1 x while#2" in str(found)
    assert "whose turns multiply" in str(found)


def test_loops_behind_each_other_add_up(asked: Any) -> None:
    found = asked(TWO)
    first, second = found.loops.loops
    for n, m in ((1, 5), (6, 1), (4, 9)):
        line = found.loops.fixed_s + n * first.per_turn_s + m * second.per_turn_s
        assert asked(TWO, while_1=n, while_2=m).step_time_s == pytest.approx(line, rel=1e-9)


def test_a_range_has_a_step_at_either_end(asked: Any) -> None:
    """Of 4..20 turns the middle is predicted; its interval holds both ends, and a wider range has a wider one."""
    found = asked(ONE, while_1="4..20")
    ends = [asked(ONE, while_1=turns) for turns in (4, 12, 20)]
    shown = found.to_json()
    assert shown["loops"][0]["turns_range"] == [4, 20]
    assert shown["loops"][0]["turns"] == 12
    assert shown["step_time_s"] == ends[1].step_time_s
    assert shown["step_time_range_s"] == pytest.approx([ends[0].step_time_s, ends[2].step_time_s], rel=1e-9)
    assert shown["energy_range_j"] == pytest.approx([ends[0].energy_j, ends[2].energy_j], rel=1e-6)
    assert shown["inputs"]["trip_counts"] == {"while#1": [4, 20]}
    low, high = shown["step_time_interval_s"]
    assert low <= ends[0].step_time_s < ends[2].step_time_s <= high
    wider = asked(ONE, while_1=(2, 22)).to_json()
    assert wider["step_time_range_s"][0] < shown["step_time_range_s"][0]
    assert wider["step_time_range_s"][1] > shown["step_time_range_s"][1]


def test_what_is_sent_follows_the_turns(tmp_path: Path) -> None:
    """An all-reduce of 256 KiB over four devices sends 2 (4 - 1) / 4 of it a turn."""
    path = tmp_path / "sending.mlir"
    path.write_text(SENDING)
    for turns in (1, 8):
        found = predict(path, on="dgx-h100", lowering="modelled", trip_counts={"*": turns})
        assert found.communication_bytes == turns * 1.5 * 256 * 256 * 4
        assert found.loops is not None
        assert found.loops.loops[0].per_turn_communication_bytes == 1.5 * 256 * 256 * 4
    spread = predict(path, on="dgx-h100", lowering="modelled", trip_counts={"*": "1..8"}).to_json()
    assert spread["communication_range_bytes"] == [1.5 * 2**18, 8 * 1.5 * 2**18]


def test_what_does_not_fit_has_loops_without_times(tmp_path: Path) -> None:
    path = tmp_path / "loop.mlir"
    path.write_text(ONE)
    found = predict(path, on="h200+memory.capacity=100kB", lowering="modelled").to_json()
    assert found["feasible"] is False
    assert (found["loops"][0]["turns"], found["loops"][0]["per_turn_s"], found["step_time_fixed_s"]) == (1, None, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"while#7": 3}, r"loops that need a count: while#1, while#2 \(0 have theirs in the program\)"),
        ({"while#1": "9..2"}, "ends before it begins"),
        ({"while#1": "many"}, "not a positive integer below 2\\^63, nor a range"),
        ({"while#1": 0}, "not a positive integer"),
        ({"while#1": (1, 2, 3)}, "a pair of integers"),
        ({"while#1": 2.5}, "a pair of integers"),
    ],
)
def test_turns_that_are_none(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = tmp_path / "loop.mlir"
    path.write_text(NESTED)
    with pytest.raises(UsageError, match=said):
        predict(path, on="h200", lowering="modelled", trip_counts=given)


def test_a_program_without_such_loops_says_nothing_of_them() -> None:
    found = predict(Path(__file__).parents[2] / "fixtures" / "tanh.mlir", on="h200")
    assert found.loops is None
    assert not {"loops", "step_time_fixed_s"} & found.to_json().keys()


def test_memory_does_not_grow_with_turns(tmp_path: Path) -> None:
    path = tmp_path / "loop.mlir"
    path.write_text(ONE)
    runs = [prepare(path, Options(on="h200", lowering="modelled", trip_counts={"*": n})) for n in (1, 100)]
    assert runs[0].memory == runs[1].memory


def test_host_and_device_take_turns() -> None:
    """By hand: three turns of 20 s on the device, 4 launches of half of 10 s and 3 s of the host, 7 s of waiting, 2 s of pause.

    A turn is max(20 + 4 x 2, 3 + 4 x 5) + 7 = 35 where pauses are 2 s, max(20, 23) + 7 = 30 where there are none, and the
    host asks once more at the end.
    """
    kernels = tuple(Kernel(name=f"k{i}", kind=KernelKind.LOOP_FUSION, dtype="f32") for i in range(4))
    body = Schedule(inputs=(), outputs=(), steps=kernels)
    whole = Schedule(inputs=(), outputs=(), steps=(LoopStep(label="while#1", body=body, trips=3, reads=(), writes=()),))
    costs = HostCosts(launch=10.0, again=0.5, iteration=3.0, predicate=7.0)
    turn = Timeline(spans=(), duration=20.0, breakdown=Breakdown(), communication_busy=0.0, energy=0.0)
    timeline = Timeline(
        spans=(Repeat(label="while#1", body=turn, trips=3, start=0.0, end=60.0),),
        duration=60.0,
        breakdown=Breakdown(),
        communication_busy=0.0,
        energy=0.0,
    )
    for pause, expected in ((2.0, 3 * 35.0 + 7.0), (0.0, 3 * 30.0 + 7.0)):
        loops = AskingLoops(labels={"while#1"}, costs=costs, pause=pause)
        assert loops.seconds(whole, timeline) == (expected, 60.0)
    assert AskingLoops(labels=set(), costs=costs, pause=0.0).seconds(whole, timeline) == (0.0, 0.0)
