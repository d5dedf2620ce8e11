"""Host time: hand-computed schedules, and when it counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import Options, predict, prepare
from meshcast.base.errors import UsageError
from meshcast.lower.kernel import BranchStep, Kernel, KernelKind, LoopStep, Schedule, Step
from meshcast.simulate.host import HostCosts, issued_seconds, loose_launches
from meshcast.workload.graph import Gemm
from meshcast.workload.shapes import Transform

COSTS = HostCosts(launch=5.0, convolution=25.0, graph=7.0, graph_kernel=0.5, relaunch=4.0, iteration=3.0)


def kernels(count: int, kind: KernelKind = KernelKind.LOOP_FUSION) -> list[Step]:
    return [Kernel(name=f"k{i}", kind=kind, dtype="f32") for i in range(count)]


def issued(*steps: Step) -> float:
    return issued_seconds(Schedule(inputs=(), outputs=(), steps=steps), COSTS)


def test_few_kernels_are_launched_one_by_one() -> None:
    assert issued(*kernels(4)) == 20.0


def test_experts_are_launched_one_by_one_and_others_as_often_as_said() -> None:
    """Outside of graphs: a product with 16 experts' weights is 16 launches, what joins products one and a half; in a graph
    nothing changes, and a batch of products with something else is one launch.
    """
    shape = Gemm(
        batch=16, m=8, n=64, k=32, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16", lhs_contracting_minor=True,
        rhs_contracting_minor=False,
    )  # fmt: skip
    product = replace(Kernel(name="k", kind=KernelKind.GEMM, dtype="bf16"), geometry=shape)
    attention = replace(product, geometry=replace(shape, n=48))
    schedule = Schedule(inputs=(), outputs=(), steps=(product, attention, *kernels(5)))
    eager = replace(COSTS, graphs=False, each_expert=True, unfused=1.5)
    experts = frozenset({(16, 32, 64)})
    assert issued_seconds(schedule, eager, experts=experts) == 5.0 * (16 + 1 + 1.5 * 5)
    python = replace(eager, expert_calls=1.75)  # what Python does for each expert's weights, besides
    assert issued_seconds(schedule, python, experts=experts) == 5.0 * (28 + 1 + 1.5 * 5)
    assert issued_seconds(schedule, replace(eager, unfused=1.0)) == 5.0 * 7
    assert issued_seconds(schedule, replace(eager, graphs=True), experts=experts) == 7.0 + 0.5 * 7


def test_five_neighbours_share_a_graph() -> None:
    assert issued(*kernels(6)) == 7.0 + 3.0


def test_a_convolution_ends_a_graph() -> None:
    steps = [*kernels(5), *kernels(1, KernelKind.CONVOLUTION), *kernels(2)]
    assert issued(*steps) == (7.0 + 2.5) + 25.0 + 10.0


def test_transforms_and_solvers_end_a_graph_and_are_launched_alone() -> None:
    """Of seven kernels around a transform in two dimensions no five are neighbours; the transform itself is two launches."""
    transform = replace(
        Kernel(name="fft", kind=KernelKind.OTHER, dtype="complex<f32>"),
        geometry=Transform(kind="FFT", lengths=(64, 64), batch=1),
    )
    solver = Kernel(name="lu", kind=KernelKind.SOLVER, dtype="f32")
    for call, launches in ((transform, 2), (solver, 1)):
        steps = (*kernels(4), call, *kernels(3))
        assert issued(*steps) == 5.0 * (7 + launches)  # each launch is the host's, also inside of one call
        assert loose_launches(Schedule(inputs=(), outputs=(), steps=steps)) == 7 + launches
    assert issued(*kernels(5), solver) == (7.0 + 2.5) + 5.0


def test_loop_bodies_are_issued_every_turn() -> None:
    body = Schedule(inputs=(), outputs=(), steps=tuple(kernels(2)))
    loop = LoopStep(label="while", body=body, trips=10, reads=(), writes=())
    assert issued(loop) == (3.0 + 10.0) + 9 * (3.0 + 0.5 * 10.0)  # what was launched just before costs half
    eager = replace(COSTS, graphs=False)  # a loop of a framework is Python's
    assert issued_seconds(Schedule(inputs=(), outputs=(), steps=(loop,)), eager) == 10 * (3.0 + 10.0)


def test_a_convolution_in_a_loop_costs_half_behind_the_first_turn() -> None:
    steps = (*kernels(1, KernelKind.CONVOLUTION), *kernels(2))
    body = Schedule(inputs=(), outputs=(), steps=steps)
    loop = LoopStep(label="while", body=body, trips=3, reads=(), writes=())
    assert issued(loop) == 3 * 3.0 + (25.0 + 10.0) * (1 + 2 * 0.5)


def test_a_loop_writes_its_graphs_once_and_launches_them_every_turn() -> None:
    inner = LoopStep(label="inner", body=body(6), trips=10, reads=(), writes=())
    first = 3.0 + (7.0 + 3.0)
    assert issued(inner) == first + 9 * (3.0 + 4.0)
    outer = LoopStep(label="outer", body=Schedule(inputs=(), outputs=(), steps=(inner,)), trips=2, reads=(), writes=())
    assert issued(outer) == 2 * 3.0 + (first + 9 * 7.0) + 10 * 7.0
    assert issued(LoopStep(label="none", body=body(6), trips=0, reads=(), writes=())) == 0.0


def body(count: int) -> Schedule:
    return Schedule(inputs=(), outputs=(), steps=tuple(kernels(count)))


def branch(*counts: int) -> BranchStep:
    return BranchStep(bodies=tuple(body(count) for count in counts), reads=(), writes=())


def test_a_branch_costs_a_turn_and_its_dearest_body() -> None:
    assert issued(branch(2, 4, 1)) == 3.0 + 20.0
    assert issued(branch(4, 6)) == 3.0 + 20.0  # four launches cost more than a graph of six: 10
    assert issued(branch()) == 3.0


def loose(*steps: Step) -> int:
    return loose_launches(Schedule(inputs=(), outputs=(), steps=steps))


def test_launches_outside_of_graphs() -> None:
    convolution = kernels(1, KernelKind.CONVOLUTION)
    assert loose(*kernels(4)) == 4
    assert loose(*kernels(5)) == 0
    assert loose(*kernels(5), *convolution, *convolution, *kernels(2)) == 2 + 2
    assert loose(LoopStep(label="while", body=body(3), trips=10, reads=(), writes=())) == 30
    assert (
        loose(LoopStep(label="while", body=body(5), trips=10, reads=(), writes=())) == 10
    )  # a graph is launched every turn
    assert loose(branch(2, 4, 6)) == 4
    assert loose(*kernels(4), branch(1), *kernels(4)) == 4 + 1 + 4  # a branch ends a graph


def test_without_graphs_every_kernel_is_a_launch() -> None:
    steps = (*kernels(6), *kernels(1, KernelKind.CONVOLUTION))
    schedule = Schedule(inputs=(), outputs=(), steps=steps)
    assert issued_seconds(schedule, replace(COSTS, graphs=False)) == 6 * 5.0 + 25.0
    assert loose_launches(schedule, graphs=False) == 7


def chain(count: int) -> str:
    """`count` sorts of a vector: nothing to fuse."""
    lines = ["func.func @main(%r0: tensor<64xf32>) -> tensor<64xf32> {"]
    for i in range(count):
        lines += [
            f'  %r{i + 1} = "stablehlo.sort"(%r{i}) ({{',
            "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):",
            "    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>",
            "    stablehlo.return %c : tensor<i1>",
            "  }) {dimension = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>",
        ]
    return "\n".join([*lines, f"  return %r{count} : tensor<64xf32>", "}"])


def test_single_ops_are_told_by_their_device_time(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("host") / "one.mlir"
    path.write_text(chain(1))
    alone = predict(path, on="h200", fidelity="analytical")
    counted = predict(path, on="h200", fidelity="analytical", host="on")
    assert alone.step_time_s is not None
    assert counted.step_time_s is not None
    assert alone.step_time_s < counted.step_time_s
    assert counted.breakdown is not None
    assert counted.breakdown.total == pytest.approx(counted.step_time_s)
    assert counted.breakdown.idle > 0


def test_host_bounds_a_program_of_many_small_kernels(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("host") / "many.mlir"
    path.write_text(chain(12))
    run = prepare(path, Options(on="h200", fidelity="analytical"))
    assert run.host > 0
    prediction = run.predict()
    assert prediction.step_time_s == pytest.approx(
        max(run.host, run.simulator.run(run.kernels, lambda _: 0.0).duration)
    )
    assert prediction.interval_s is not None
    assert prediction.interval_s[0] <= run.host <= prediction.interval_s[1]
    assert prepare(path, Options(on="h200", fidelity="analytical", host="off")).host == 0
    assert prepare(path, Options(on="h200", fidelity="roofline")).host == 0


def test_unknown_setting() -> None:
    with pytest.raises(UsageError, match="--host"):
        predict("mlp-tiny", on="h200", host="sometimes")


@pytest.mark.parametrize(("host", "told"), [("auto", False), ("on", False), ("fast", True), ("8us", True)])
def test_a_pace_that_nothing_is_issued_at_is_told(tmp_path: Path, host: str, told: bool) -> None:
    path = tmp_path / "one.mlir"
    path.write_text(chain(1))
    warnings = predict(path, on="h200", fidelity="analytical", host=host).warnings
    assert any(f"--host {host} has no effect" in each for each in warnings) == told
