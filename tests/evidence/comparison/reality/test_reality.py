"""Predictions beside traces: made ones, whose answer is known, and the shipped ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import prepare
from meshcast.base.errors import InfeasibleError, InputError, UnsupportedError, UsageError
from meshcast.evidence.comparison.reality import Reality, compare_measured
from meshcast.evidence.comparison.reality.matching import matched
from meshcast.evidence.comparison.reality.predicted import PredictedLaunch, launches
from meshcast.evidence.comparison.reality.sources import hlo_places
from meshcast.evidence.profiler import MeasuredKernel
from meshcast.options.options import Options
from tests.evidence.profiler.traces import Event, kernel_event, kineto, xspace

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples" / "measured"
FIXTURES = ROOT / "tests" / "fixtures"
OPTIONS = Options(on="h200", fidelity="analytical", lowering="modelled")
# A kernel's name in PyTorch's words, by the class that it should be taken for.
NAMES = {
    "matmul": "nvjet_gemm",
    "element-wise": "vectorized_elementwise_kernel",
    "reduction": "reduce_kernel",
    "copy": "copy_kernel",
    "gather and scatter": "gather_kernel",
}


@pytest.fixture(scope="module")
def tiny() -> list[PredictedLaunch]:
    """The launches of a small model's step."""
    return launches(prepare("mlp-tiny", OPTIONS))


def as_trace(
    folder: Path, predicted: list[PredictedLaunch], *, slower: float = 1.0, steps: int = 4, pause: float = 0.0
) -> Path:
    """A PyTorch trace of a run that went as predicted, with a pause after every step; the first step is slow."""
    events, now = [], 0.0
    for step in range(steps):
        for launch in predicted:
            seconds = launch.seconds * (slower if launch.kind == "matmul" else 1.0) * (3 if step == 0 else 1)
            events.append(kernel_event(NAMES[launch.kind], now * 1e6, seconds * 1e6))
            now += seconds
        now += pause
    path = folder / "trace.json"
    path.write_bytes(kineto(events))
    return path


def difference(reality: Reality, kind: str) -> float:
    return next(part.difference_s for part in reality.waterfall if part.kind == kind)


def test_a_run_as_predicted_parts_only_in_what_was_added(tmp_path: Path, tiny: list[PredictedLaunch]) -> None:
    reality = compare_measured("mlp-tiny", [as_trace(tmp_path, tiny, slower=1.5, pause=1e-3)], OPTIONS, steps=4)
    busy = {launch.kind: 0.0 for launch in tiny}
    for launch in tiny:
        busy[launch.kind] += launch.seconds
    assert difference(reality, "matmul") == pytest.approx(0.5 * busy["matmul"])
    assert difference(reality, "idle and host gaps") == pytest.approx(1e-3, rel=0.2)
    for kind in busy:
        if kind != "matmul":
            assert difference(reality, kind) == pytest.approx(0.0, abs=1e-9)
    assert reality.measured_s == pytest.approx(sum(busy.values()) + 0.5 * busy["matmul"] + 1e-3)
    assert reality.coverage.measured == pytest.approx(1.0)
    assert reality.comparable
    assert all(row.kind == "matmul" and row.ratio == pytest.approx(1 / 1.5) for row in reality.worst[:2])
    assert not reality.of("missing")
    assert not reality.of("extra")


def test_the_waterfall_adds_up(tmp_path: Path, tiny: list[PredictedLaunch]) -> None:
    reality = compare_measured("mlp-tiny", [as_trace(tmp_path, tiny[::2], pause=1e-4)], OPTIONS)
    assert sum(part.difference_s for part in reality.waterfall) == pytest.approx(reality.difference_s, rel=1e-9)
    assert reality.measured_s == pytest.approx(reality.shown.search.step.seconds)
    assert reality.predicted_s == pytest.approx(prepare("mlp-tiny", OPTIONS).timeline.duration)
    assert reality.of("missing")


def test_names_come_first_and_take_all_launches_of_an_instruction(tiny: list[PredictedLaunch]) -> None:
    first = replace(tiny[0], kernel=replace(tiny[0].kernel, name="fusion.1"))
    called = replace(tiny[0], kernel=replace(tiny[0].kernel, name="custom-call.1"))
    kernels = [
        MeasuredKernel(name="memset", op="custom-call.1", start=0.0, duration=called.seconds / 2),
        MeasuredKernel(name="anything", op="custom-call.1", start=1.0, duration=called.seconds * 3),
    ]
    (match,) = matched([called], kernels).matches
    assert (match.how, match.predicted, match.measured) == ("name", (0,), (0, 1))
    # Inside a CUDA graph there are only kernels' names, which equal fusions share.
    shared = [MeasuredKernel(name="fusion_1", start=float(i), duration=1e3) for i in range(2)]
    assert [match.how for match in matched([first], shared).matches] == ["name", "extra"]


def test_names_of_another_compilation_count_only_where_durations_agree(tiny: list[PredictedLaunch]) -> None:
    own = [replace(launch, kernel=replace(launch.kernel, name=f"fusion.{i}")) for i, launch in enumerate(tiny[:5])]
    times = [launch.seconds * factor for launch, factor in zip(own, (1, 50, 2, 5, 50), strict=True)]
    kernels = [MeasuredKernel(name="k", op=f"fusion.{i}", start=float(i), duration=t) for i, t in enumerate(times)]
    assert not matched(own, kernels).one_compilation
    named = [match.predicted for match in matched(own, kernels).matches if match.how == "name"]
    assert named == [(0,), (2,)]
    # One that was merely predicted badly is still itself, however badly, and so are library calls.
    assert matched(own, kernels[:4]).one_compilation
    calls = [replace(launch, kernel=replace(launch.kernel, name=f"cudnn-conv.{i}")) for i, launch in enumerate(own)]
    assert matched(calls, [replace(kernel, op=f"cudnn-conv.{i}") for i, kernel in enumerate(kernels)]).one_compilation


def test_every_launch_is_in_one_match(tiny: list[PredictedLaunch]) -> None:
    kernels = [MeasuredKernel(name="reduce_kernel", start=float(i), duration=1e-5) for i in range(7)]
    found = matched(tiny, kernels).matches
    assert sorted(i for match in found for i in match.predicted) == list(range(len(tiny)))
    assert sorted(j for match in found for j in match.measured) == list(range(7))


def test_several_devices_show_the_median_one(tmp_path: Path) -> None:
    events = [
        kernel_event("nvjet_gemm", step * 1000.0 + i, 0.5 + device, device=device)
        for device in range(3)
        for step in range(3)
        for i in range(4)
    ]
    path = tmp_path / "ranks.json"
    path.write_bytes(kineto(events))
    reality = compare_measured("mlp-tiny", [path], OPTIONS, steps=1)
    assert reality.shown.trace.device == "GPU:1"
    assert any("3 devices measured" in note for note in reality.notes)


def test_communication_counts_where_nothing_else_runs(tmp_path: Path) -> None:
    """All-reduce of a sharded program: 30 us, of which 10 run beside the second product."""
    kernels = [
        ("nvjet_gemm", 0.0, 35.0, 7),
        ("elementwise_kernel", 35.0, 3.0, 7),
        ("nvjet_gemm", 38.0, 35.0, 7),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 63.0, 30.0, 20),
    ]
    events = [
        kernel_event(name, 100.0 * step + start, seconds, device=rank, stream=stream)
        for rank in range(2)
        for step in range(3)
        for name, start, seconds, stream in kernels
    ]
    path = tmp_path / "ranks.json"
    path.write_bytes(kineto(events))
    reality = compare_measured(str(FIXTURES / "sharded.mlir"), [path], OPTIONS, on="dgx-h100")
    parts = {part.kind: part.measured_s for part in reality.waterfall}
    assert parts == pytest.approx(
        {
            "matmul": 70e-6,
            "element-wise": 3e-6,
            "collective: all-reduce": 20e-6,
            "idle and host gaps": 7e-6,
        }
    )
    row = next(row for row in reality.rows if row.kind.startswith("collective"))
    assert row.how == "order"
    assert row.measured_s == pytest.approx(30e-6)
    assert reality.comparable


def test_other_modules_in_a_step_are_named(tmp_path: Path) -> None:
    def launch(name: str, start: float, module: str) -> Event:
        return name, start, 900.0, {"hlo_op": name, "hlo_module": module}

    events = [
        launch(name, 10_000.0 * step + 1000.0 * i, module)
        for step in range(4)
        for i, (name, module) in enumerate([("dot.1", "jit_step"), ("add.1", "jit_step"), ("dot.2", "jit_log")])
    ]
    path = tmp_path / "run.xplane.pb"
    path.write_bytes(xspace({"/device:GPU:0": {"Stream #1": events}}))
    both = compare_measured("mlp-tiny", [path], OPTIONS, steps=4)
    assert any("jit_log" in note for note in both.notes)
    one = compare_measured("mlp-tiny", [path], OPTIONS, steps=4, module="jit_step")
    assert [step.launches for step in one.shown.search.steps] == [2] * 4
    assert not any("jit_log" in note for note in one.notes)


def test_a_summary_compares_kernels_alone(tmp_path: Path) -> None:
    path = tmp_path / "sum.csv"
    path.write_text("Total Time (us),Instances,Name\n40,8,nvjet_gemm\n8,4,elementwise_kernel\n")
    reality = compare_measured("mlp-tiny", [path], OPTIONS, steps=4)
    assert reality.measured_s == pytest.approx(12e-6)
    assert "idle and host gaps" not in {part.kind for part in reality.waterfall}


def test_what_cannot_be_compared_is_refused(tmp_path: Path, tiny: list[PredictedLaunch]) -> None:
    path = as_trace(tmp_path, tiny)
    with pytest.raises(UsageError, match="no trace"):
        compare_measured("mlp-tiny", [], OPTIONS)
    with pytest.raises(UsageError, match="0 steps"):
        compare_measured("mlp-tiny", [path], OPTIONS, steps=0)
    with pytest.raises(UsageError, match="no setting"):
        compare_measured("mlp-tiny", [path], OPTIONS, colour="red")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="module"):
        compare_measured("mlp-tiny", [path], OPTIONS, module="jit_f")
    with pytest.raises(InfeasibleError, match="not to fit"):
        compare_measured("gpt2-xl", [path], OPTIONS.having(settings={"batch": "512"}))
    with pytest.raises(UnsupportedError, match="pipeline"):
        compare_measured(str(ROOT / "examples" / "pipeline" / "tiny.toml"), [path], OPTIONS)


def test_source_lines_of_xlas_text() -> None:
    text = """HloModule jit_f

FileNames
1 "models/gpt.py"

FunctionNames
1 "block"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=6 end_column=34}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY %main {
  %fusion.1 = f32[8] fusion(%a), metadata={op_name="jit(f)/add" stack_frame_id=1}
  ROOT %copy.2 = f32[8] copy(%b), metadata={op_name="x" source_file="old.py" source_line=7}
}
"""
    assert hlo_places(text) == {"fusion.1": "models/gpt.py:12", "copy.2": "old.py:7"}


@pytest.fixture(scope="module")
def gpt() -> Reality:
    """The shipped profile beside the program that XLA compiled for it."""
    options = Options(on="h200", fidelity="analytical")
    return compare_measured(str(EXAMPLES / "gpt2-small.hlo.gz"), [EXAMPLES / "gpt2-small.xplane.pb.gz"], options)


def test_the_shipped_profile_is_that_of_the_program(gpt: Reality) -> None:
    assert gpt.coverage.by_name > 0.8
    assert gpt.coverage.measured > 0.95
    assert gpt.coverage.predicted > 0.95
    assert gpt.measured_s == pytest.approx(55.62e-3, rel=1e-3)
    assert gpt.predicted_s == pytest.approx(gpt.measured_s, rel=0.25)
    assert [step.launches for step in gpt.shown.search.steps] == [1690] * 4
    assert sum(part.difference_s for part in gpt.waterfall) == pytest.approx(gpt.difference_s, rel=1e-9)
    assert "models/gpt.py:79" in {"/".join(row.source.split("/")[-2:]) for row in gpt.worst}


def test_json_holds_it_all(gpt: Reality) -> None:
    found = json.loads(json.dumps(gpt.to_json(), allow_nan=False))
    assert found["schema"] == "meshcast.reality/1"
    assert found["prediction"]["schema"] == "meshcast.prediction/1"
    assert len(found["worst"]) == 10
    assert sum(row["measured_s"] for row in found["kernels"]) == pytest.approx(
        sum(kernel.duration for kernel in gpt.shown.search.step.kernels)
    )
    assert found["measured"][0]["steps"]["found"] == 4


def test_the_text_has_every_part(gpt: Reality) -> None:
    text = str(gpt)
    for part in ("predicted against measured", "Where they part", "The 10 kernels", "Predicted, not measured"):
        assert part in text
