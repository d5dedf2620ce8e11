"""The clock under a power cap: the average over a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshcast import Options, prepare
from meshcast.estimate.energy import idle_watts

PRODUCT = """
  {after} = stablehlo.dot_general {before}, {before}, contracting_dims = [1] x [0]
    : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>"""
PROGRAM = """
func.func public @main(%0: tensor<8192x8192xbf16>, %x: tensor<{n}xf32>) -> (tensor<8192x8192xbf16>, tensor<{n}xf32>) {{
  {body}
  return {out}, %y : tensor<8192x8192xbf16>, tensor<{n}xf32>
}}"""


def run(folder: Path, products: int, elements: int, clocks: str) -> tuple[float, float]:
    """(seconds, average watts) of a step of products and one addition."""
    path = folder / f"{products}-{elements}.mlir"
    steps = "".join(PRODUCT.format(before=f"%{i}", after=f"%{i + 1}") for i in range(products))
    body = f"{steps}\n  %y = stablehlo.add %x, %x : tensor<{elements}xf32>"
    path.write_text(PROGRAM.format(n=elements, body=body, out=f"%{products}"))
    options = Options(on="h200", fidelity="analytical", clocks=clocks, levers=False)
    prediction = prepare(path, options).predict()
    assert prediction.step_time_s is not None
    assert prediction.energy_j is not None
    return prediction.step_time_s, prediction.energy_j / prediction.step_time_s


def test_products_alone_are_capped_and_run_as_long_as_measured(tmp_path: Path) -> None:
    seconds, watts = run(tmp_path, 2, 1, "sustained")
    assert watts == pytest.approx(700, rel=0.01)
    assert seconds == pytest.approx(2 * 1598e-6, rel=0.05)  # measured, at 1504 MHz


def test_a_step_that_rests_between_its_products_is_capped_less(tmp_path: Path) -> None:
    alone, _ = run(tmp_path, 1, 1, "sustained")
    both, watts = run(tmp_path, 1, 2**30, "sustained")
    memory, _ = run(tmp_path, 0, 2**30, "sustained")
    assert watts <= 700 * 1.001
    assert both < alone + memory  # the pass over memory draws less than the cap, and the product may have the rest


def test_a_step_below_the_cap_runs_at_the_full_clock(tmp_path: Path) -> None:
    seconds, watts = run(tmp_path, 0, 2**28, "sustained")
    assert watts < 700
    assert seconds == pytest.approx(run(tmp_path, 0, 2**28, "burst")[0])


def test_idle_power_is_part_of_the_average(tmp_path: Path) -> None:
    options = Options(on="h200", fidelity="analytical", levers=False)
    path = tmp_path / "add.mlir"
    path.write_text(PROGRAM.format(n=4, body="%y = stablehlo.add %x, %x : tensor<4xf32>", out="%0"))
    prepared = prepare(path, options)
    prediction = prepared.predict()
    assert prediction.energy_j is not None
    assert prediction.step_time_s is not None
    assert prediction.energy_j > idle_watts(prepared.device) * prediction.step_time_s
