"""Products and convolutions on a TPU's arrays: how they are spread, what they cost, and what answers for the rest."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import pytest

from meshcast import Options, predict, prepare
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.estimate import simulator_names
from meshcast.estimate.outside import GPU_SIMULATORS, SIMULATORS
from meshcast.estimate.products import ArrayProduct
from meshcast.estimate.simulated import Simulated, array_of, spread
from meshcast.estimate.systolic.cycles import compute_cycles
from meshcast.estimate.systolic.layer import product_shapes
from meshcast.hardware import load_device
from meshcast.programs import capture
from tests.estimate.conformance import check_conformance, gemm
from tests.lower.programs import spec

V6E = load_device("tpu-v6e")


def test_it_conforms_on_tpus() -> None:
    check_conformance(Simulated(), V6E)


def test_a_square_product_by_hand() -> None:
    # Four arrays of 256 x 256: each streams 4096 rows past 1024 columns, 16 x 4 folds of 2 * 256 + 256 + 4096 - 2 cycles.
    answer = Simulated().estimate([gemm(4096, 4096, 4096)], V6E)
    cores = V6E.tensor_cores
    assert cores is not None
    passes = 2 * 256 * 256 * 4 * V6E.clock_hz / V6E.matrix_peak("bf16")
    assert answer.time[0] == pytest.approx(16 * 4 * 4862 / V6E.clock_hz * passes)
    assert answer.time[0] == pytest.approx(177e-6, rel=0.1)  # as published for this product
    assert answer.memory_time[0] == pytest.approx(3 * 4096**2 * 2 / (0.76 * V6E.memory_bandwidth))


def test_batches_go_to_arrays_as_a_whole_and_one_row_past_many_columns() -> None:
    assert V6E.tensor_cores is not None
    array = array_of(V6E.tensor_cores)
    found = spread(ArrayProduct(count=8, m=300, n=200, k=64), 4, array)
    assert (found.count, {found.layer.m, found.layer.n}) == (2, {300, 200})
    single = spread(ArrayProduct(count=1, m=1, n=4096, k=256), 4, array).layer  # the long side is streamed
    assert (single.m, single.n) == (1024, 1)


def test_the_cut_with_the_fewest_cycles_is_taken() -> None:
    assert V6E.tensor_cores is not None
    array = array_of(V6E.tensor_cores)
    product = ArrayProduct(count=1, m=1000, n=3000, k=700)
    best = spread(product, 4, array).layer
    for rows, columns in ((1, 4), (2, 2), (4, 1)):
        for m, n in ((1000 // rows, 3000 // columns), (3000 // columns, 1000 // rows)):
            other = replace(best, ifmap_height=m, filters=n)
            assert compute_cycles(*product_shapes([best]), array) <= compute_cycles(*product_shapes([other]), array)


def test_the_rest_of_a_program_comes_from_the_fidelities_behind() -> None:
    program = capture(lambda x, w: jnp.tanh(jnp.sort(x @ w)), spec(512, 512), spec(512, 512), name="mixed")
    run = prepare(program, Options(on="tpu-v5e", fidelity="simulated"))
    answered = {kernel.kind.value: run.kernels[kernel].estimator for kernel, _ in run.executed}
    assert answered["gemm"] == "systolic"
    assert set(answered.values()) > {"systolic"}
    shares = run.predict().provenance
    assert 0 < shares.simulated < 1
    assert shares.simulated + shares.analytical == pytest.approx(1.0)


def test_devices_without_arrays_are_refused() -> None:
    program = capture(lambda x: x @ x, spec(64, 64), name="square")
    with pytest.raises(UnsupportedError, match="no systolic arrays and no SMs"):
        predict(program, Options(on="mi300x", fidelity="simulated"))


def test_simulators_are_named() -> None:
    program = capture(lambda x: x @ x, spec(64, 64), name="square")
    with pytest.raises(UsageError, match="no simulator 'scalesym'"):
        predict(program, Options(on="tpu-v5e", fidelity="simulated", simulator="scalesym"))
    with pytest.raises(UsageError, match="does not simulate"):
        predict(program, Options(on="tpu-v5e", fidelity="roofline", simulator="scalesim"))
    devices = {name: load_device("h200" if name in GPU_SIMULATORS else "tpu-v4") for name in SIMULATORS}
    found = {simulator_names.load_simulator(name, device).fidelity for name, device in devices.items()}
    assert found == {"simulated"}


def test_it_explains_itself() -> None:
    explained = Simulated().explain(gemm(4096, 4096, 4096), V6E)
    values = {term.symbol: term.value for term in explained.terms}
    assert values["cycles"] == 16 * 4 * 4862
    assert explained.limited_by == "compute"
    assert explained.time == Simulated().estimate([gemm(4096, 4096, 4096)], V6E).time[0]
