"""Dense solvers: what their calls are, how their time grows, how far off the fit is on what was left out of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import predict
from meshcast.estimate.gpu import GpuAnalytical
from meshcast.estimate.gpu.solvers import shipped_solvers, solver_path
from meshcast.evidence.fits.gpu_solvers import fit, log_ratios, read_rows
from meshcast.hardware.registry import load_device
from meshcast.lower.kernel import Kernel, KernelKind
from meshcast.programs import capture
from meshcast.workload import read_workload
from meshcast.workload.graph import Factorisation, Routine
from meshcast.workload.rules.solvers import SOLVER_COUNTS

MEASURED = Path(__file__).parents[2] / "data/measured/h200-solvers/measurements.csv"
H200 = load_device("h200")
SQUARE = jax.ShapeDtypeStruct((256, 256), jnp.float32)
MANY = jax.ShapeDtypeStruct((8, 64, 64), jnp.float32)


def call(routine: Routine, n: int, *, batch: int = 1, rows: int = 0) -> Kernel:
    shape = Factorisation(routine=routine, batch=batch, rows=rows or n, columns=n, right=n)
    flops = batch * (2.0 * n**3 if routine == "triangular" else SOLVER_COUNTS[routine](rows or n, n))
    size = 4 * batch * n * (rows or n)
    return Kernel(
        name=routine, kind=KernelKind.SOLVER, dtype="f32", vector_flops=flops, read_bytes=size, written_bytes=size,
        geometry=shape,
    )  # fmt: skip


def seconds(routine: Routine, n: int, *, batch: int = 1, rows: int = 0, on: str = "h200") -> float:
    kernel = call(routine, n, batch=batch, rows=rows)
    return float(GpuAnalytical().estimate([kernel], load_device(on)).time[0])


def shapes(function: Any, *args: Any, platform: str = "cuda") -> list[Factorisation]:
    workload = read_workload(capture(function, *args, name="solver", platform=platform))
    return [op.cost.geometry for op in workload.body.ops if isinstance(op.cost.geometry, Factorisation)]


@pytest.mark.parametrize(
    ("function", "routines"),
    [
        (jnp.linalg.cholesky, ["cholesky"]),
        (jnp.linalg.qr, ["qr", "q"]),
        (jax.lax.linalg.lu, ["lu"]),
        (jnp.linalg.svd, ["svd"]),
        (jnp.linalg.eigh, ["eigh"]),
        (jnp.linalg.eig, ["eig"]),
        (jnp.linalg.inv, ["lu", "triangular", "triangular"]),
        (jax.lax.linalg.tridiagonal, ["eigh"]),
    ],
)
@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_every_solver_is_known_on_gpus(function: Any, routines: list[str], platform: str) -> None:
    for matrix in (SQUARE, MANY):
        found = shapes(function, matrix, platform=platform)
        assert [shape.routine for shape in found] == routines
        assert {(shape.batch, shape.rows, shape.columns) for shape in found} == {
            (math.prod(matrix.shape[:-2]), *matrix.shape[-2:])
        }


def test_those_that_xla_expands_on_tpus_are_known_too() -> None:
    assert [shape.routine for shape in shapes(jnp.linalg.qr, SQUARE, platform="tpu")] == ["qr", "q"]
    assert [shape.routine for shape in shapes(jnp.linalg.eigh, MANY, platform="tpu")] == ["eigh"]
    answer = predict((jnp.linalg.qr, (SQUARE,)), on="tpu-v5p")
    assert answer.step_time_s is not None
    assert answer.step_time_s > 1e-3
    assert any("dense solvers on TPUs" in warning for warning in answer.warnings)


def test_every_way_of_every_routine_has_costs() -> None:
    for routine in (*SOLVER_COUNTS, "triangular"):
        for batch in (1, 8):
            for side in (16, 64, 512, 4096):
                for right in (1, 8):
                    shape = Factorisation(routine=routine, batch=batch, rows=side, columns=side, right=right)
                    assert solver_path(shape) in shipped_solvers().costs


def test_solvers_take_milliseconds_and_a_batch_is_shared_out() -> None:
    assert 3e-3 < seconds("svd", 256) < 9e-3
    assert seconds("lu", 64, batch=64) < 4 * seconds("lu", 64, batch=2)
    assert seconds("svd", 256, batch=8) == pytest.approx(8 * seconds("svd", 256), rel=0.01)


@pytest.mark.parametrize("routine", [*SOLVER_COUNTS, "triangular"])
def test_more_columns_never_take_less(routine: Routine) -> None:
    times = [seconds(routine, n) for n in (64, 128, 512, 2048, 8192)]
    assert times == sorted(times)


def test_other_gpus_go_by_their_clock_and_say_so() -> None:
    slower = seconds("qr", 512, on="a100-sxm-80gb") / seconds("qr", 512)
    assert slower == pytest.approx(H200.clock_hz / load_device("a100-sxm-80gb").clock_hz, rel=0.05)
    answer = predict((jnp.linalg.cholesky, (SQUARE,)), on="a100-sxm-80gb")
    assert any("dense solvers" in warning for warning in answer.warnings)
    assert not any(
        "dense solvers" in warning for warning in predict((jnp.linalg.cholesky, (SQUARE,)), on="h200").warnings
    )


def test_what_was_left_out_of_the_fit_is_near() -> None:
    rows = read_rows(MEASURED.read_text().splitlines(), H200)
    costs = fit([row for row in rows if not row.left_out])
    errors = [abs(ratio) for ratio in log_ratios([row for row in rows if row.left_out], costs)]
    assert len(errors) == 73
    assert math.expm1(sum(errors) / len(errors)) < 0.15
    shipped = shipped_solvers().costs
    for name, numbers in costs.items():
        known = shipped[name]
        assert (known.fixed, known.step, known.byte, known.work) == pytest.approx(numbers, rel=2e-3)


@pytest.mark.parametrize(
    ("batch", "side", "way"), [(8, 1024, "batched"), (4, 640, "looped"), (4, 512, "batched"), (1, 64, "looped")]
)
def test_few_large_matrices_are_factorised_one_by_one(batch: int, side: int, way: str) -> None:
    """JAX asks for the batched routine while the side over the batch is at most 128."""
    for routine in ("lu", "qr"):
        assert (
            solver_path(Factorisation(routine=routine, batch=batch, rows=side, columns=side, right=0))
            == f"{routine} {way}"
        )


def test_calls_measured_when_the_model_was_done() -> None:
    """Within a quarter, though nothing was fitted to them."""
    rows = read_rows((MEASURED.parent / "afterwards.csv").read_text().splitlines(), H200, check=True)
    known = shipped_solvers()
    costs = {name: (c.fixed, c.step, c.byte, c.work) for name, c in known.costs.items()}
    ratios = log_ratios(rows, costs)
    assert len(rows) > 150
    assert math.expm1(sum(abs(ratio) for ratio in ratios) / len(ratios)) < 0.25
