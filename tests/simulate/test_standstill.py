"""The host's lead of a run that begins with the device at rest: by hand, in a prediction, and in averages of a few runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshcast import Options, predict, prepare
from meshcast.estimate.measurements.programs import read_measured_programs
from meshcast.evidence.validate.programs import validate_programs
from meshcast.lower.kernel import BranchStep, KernelKind, LoopStep, Schedule, Step
from meshcast.simulate.host import HostCosts, called_seconds, until_first_launch
from meshcast.simulate.standstill import COLD, STANDSTILL_S, lead_seconds
from tests.simulate.test_host import chain, kernels

COSTS = HostCosts(
    run=100.0, argument=10.0, output=20.0, launch=5.0, convolution=25.0, graph=7.0, graph_kernel=0.5, iteration=3.0
)


def schedule(*steps: Step) -> Schedule:
    return Schedule(inputs=(0, 1), outputs=(2,), steps=steps)


def test_a_graph_is_launched_whole_and_kernels_one_by_one() -> None:
    assert called_seconds(schedule(), COSTS) == 100.0 + 2 * 10.0 + 20.0
    assert until_first_launch(schedule(), COSTS) == 0.0
    assert until_first_launch(schedule(*kernels(4)), COSTS) == 5.0
    assert until_first_launch(schedule(*kernels(8)), COSTS) == 7.0 + 4.0
    assert until_first_launch(schedule(*kernels(1, KernelKind.CONVOLUTION), *kernels(8)), COSTS) == 25.0


def test_in_loops_and_branches_it_is_what_runs_first_there() -> None:
    body = schedule(*kernels(6))
    assert until_first_launch(schedule(LoopStep(label="w", body=body, trips=9, reads=(), writes=())), COSTS) == 3 + 10
    branch = BranchStep(bodies=(schedule(*kernels(1)), body), reads=(), writes=())
    assert until_first_launch(schedule(branch), COSTS) == 3 + 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve kernels, measured as an average of four runs, of none that are known, and alone on the device."""
    found = tmp_path_factory.mktemp("measured")
    (found / "programs").mkdir()
    rows = [
        {"id": "model", "group": "mlp", "wall_us": 500.0, "iters": 4},
        {"id": "untold", "group": "mlp", "wall_us": 500.0},
        {"id": "op", "group": "sort", "busy_us": 500.0, "iters": 4},
    ]
    for row in rows:
        (found / "programs" / f"{row['id']}.mlir").write_text(chain(12))
    (found / "measurements.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def test_an_average_of_a_few_runs_has_its_share(folder: Path) -> None:
    options = Options(on="h200", fidelity="analytical", levers=False)
    model, untold, op = validate_programs(read_measured_programs(folder), options)
    path = folder / "programs/model.mlir"
    prediction = predict(path, options, clocks="burst")
    assert prediction.step_time_s is not None
    assert prediction.lead_s is not None
    assert prediction.lead_s > STANDSTILL_S
    assert untold.predicted == op.predicted == pytest.approx(prediction.step_time_s * 1e6)
    assert model.predicted == pytest.approx((prediction.step_time_s + prediction.lead_s / 4) * 1e6)
    assert untold.high is not None
    assert model.high == pytest.approx(untold.high + prediction.lead_s / 4 * 1e6)


def test_what_bounds_the_step_is_not_counted_again(folder: Path) -> None:
    path = folder / "programs/model.mlir"
    device = prepare(path, Options(on="h200", fidelity="analytical"))
    assert device.predict().lead_s == lead_seconds(device.lowered)
    slow = HostCosts(run=1.0)
    host = prepare(path, Options(on="h200", fidelity="analytical", host_costs=slow))
    issued = (lead_seconds(host.lowered, slow) - STANDSTILL_S) / COLD
    assert host.predict().lead_s == pytest.approx(STANDSTILL_S + (COLD - 1) * issued)
    assert host.predict().to_json()["lead_s"] == host.predict().lead_s
    assert predict(path, on="h200", fidelity="analytical", host="off").lead_s == 0
