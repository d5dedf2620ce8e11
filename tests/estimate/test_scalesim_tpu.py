"""The published SCALE-Sim TPU model against sums by hand from its equations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcast import predict
from meshcast.estimate import FittedLines, estimate_kernels, load_estimator
from meshcast.estimate.scalesim_tpu import ScaleSimTpu, published_model
from meshcast.evidence.validate.ops.programs import op_program
from meshcast.evidence.validate.ops.rows import OpRow
from meshcast.hardware import load_device
from meshcast.lower import Kernel, KernelKind, lower
from meshcast.programs.files import from_bytes
from meshcast.results import Prediction
from meshcast.workload import read_workload
from tests.estimate.conformance import COLLECTIVE, gemm, pass_over

V4 = load_device("tpu-v4")
MODEL = published_model()
SIDES = st.integers(1, 5000)


def kernels_of(op: str, shape: dict[str, str], dtype: str = "f16") -> list[Kernel]:
    row = OpRow(id="row", chip="v4", op=op, dtype=dtype, shape=shape, time_us=1.0)
    program = from_bytes(op_program(row).text.encode(), name=op, where=op)
    return [kernel for kernel, _ in lower(read_workload(program), backend="xla-tpu").schedule.walk()]


def test_cycles_of_a_product_by_hand() -> None:
    assert MODEL.products.cycles(128, 128, 128) == 3 * 128 + 128 - 2
    assert MODEL.products.cycles(1024, 256, 512) == min((384 + 1024 - 2) * 2 * 4, (384 + 256 - 2) * 8 * 4)
    assert MODEL.products.cycles(1, 129, 1) == min((384 + 1 - 2) * 2, 384 + 129 - 2)


@pytest.mark.parametrize(
    ("size", "slope", "start"), [(127, 0.002762, 0.059902), (128, 0.00036, 0.780070), (1024, 0.00020227, 29.721747)]
)
def test_products_take_the_line_of_their_largest_side(size: int, slope: float, start: float) -> None:
    assert MODEL.products.microseconds(64, size, 32) == pytest.approx(
        slope * MODEL.products.cycles(64, size, 32) + start
    )


@given(m=SIDES, n=SIDES, k=SIDES)
def test_a_product_and_its_transpose_take_the_same_time(m: int, n: int, k: int) -> None:
    assert MODEL.products.microseconds(m, n, k) == MODEL.products.microseconds(n, m, k) > 0


def test_elementwise_lines_and_the_shape_rule_by_hand() -> None:
    assert MODEL.elementwise_us("add", (1000,)) == pytest.approx(0.00002 * 1000 + 0.892433)
    assert MODEL.elementwise_us("tanh", (64, 32)) == pytest.approx(0.00001218 * 2048 + 0.932870)
    assert MODEL.counted_elements((256, 130)) == 256 * 256
    assert MODEL.counted_elements((2, 65, 128)) == 256 * 128
    assert MODEL.counted_elements((128, 100)) == 12800  # 100 is below 128 and stays
    assert MODEL.counted_elements((130, 130)) == 16900  # no side is a multiple
    assert MODEL.elementwise_us("sine", (8, 8)) == MODEL.elementwise_us("add", (8, 8))
    assert MODEL.norm_us("layer_norm", 10**6) == pytest.approx(2.93 + 1.393463)


@pytest.mark.parametrize(
    ("op", "line"),
    [
        ("add", "add"), ("subtract", "subtract"), ("multiply", "multiply"), ("divide", "divide"), ("relu", "relu"),
        ("logistic", "sigmoid"), ("tanh", "tanh"), ("leaky_relu", "leaky_relu"), ("elu", "elu"), ("selu", "selu"),
        ("prelu", "prelu"), ("linear", "linear"), ("binary_step", "binary_step"),
    ],
)  # fmt: skip
def test_a_function_in_a_program_is_recognised(op: str, line: str) -> None:
    kernels = kernels_of(op, {"dims": "256x512"})
    assert ScaleSimTpu().supports(kernels[0], V4).level == "yes"
    seconds = ScaleSimTpu().estimate(kernels, V4).time
    assert list(seconds) == [pytest.approx(1e-6 * MODEL.elementwise_us(line, (256, 512)))]


def test_products_and_norms_in_programs() -> None:
    (product,) = kernels_of("matmul", {"M": "64", "N": "256", "K": "512"})
    assert ScaleSimTpu().estimate([product], V4).time[0] == pytest.approx(
        1e-6 * MODEL.products.microseconds(64, 256, 512)
    )
    ops = tuple(f"stablehlo.{name}" for name in ("convert", "reduce", "multiply", "reduce", "sqrt", "divide"))
    plain = Kernel(name="norm", kind=KernelKind.REDUCTION, dtype="f16", elements=4096, shape=(8, 512), ops=ops)
    centred = replace(plain, ops=(*ops, "stablehlo.subtract"))
    for norm, line in ((plain, "rms_norm"), (centred, "layer_norm")):
        assert ScaleSimTpu().supports(norm, V4).level == "yes"
        assert ScaleSimTpu().estimate([norm], V4).time[0] == pytest.approx(1e-6 * MODEL.norm_us(line, 4096))
    assert ScaleSimTpu().supports(replace(plain, ops=("stablehlo.reduce",)), V4).level == "no"


def test_what_it_does_not_know_is_said() -> None:
    model = ScaleSimTpu()
    (product,) = kernels_of("matmul", {"M": "64", "N": "256", "K": "512"})
    elsewhere = model.supports(product, load_device("tpu-v6e"))
    assert elsewhere.level == "no"
    assert "v4" in elsewhere.reason
    assert model.supports(product, load_device("h200")).level == "no"
    assert "f16" in model.supports(gemm(64, 64, 64), V4).reason
    batched = gemm(64, 64, 64, batch=3, dtype="f16", out="f16")
    assert model.supports(batched, V4).level == "approximate"
    assert model.estimate([batched], V4).time[0] == pytest.approx(3e-6 * MODEL.products.microseconds(64, 64, 64))
    (sine,) = kernels_of("sine", {"dims": "128x128"})
    assert "additions" in model.supports(sine, V4).reason
    (both,) = kernels_of("silu", {"dims": "128x128"})
    lines = [MODEL.elementwise_us(name, (128, 128)) for name in ("sigmoid", "multiply")]
    assert model.estimate([both], V4).time[0] == pytest.approx(1e-6 * sum(lines))
    for kind in (KernelKind.CONVOLUTION, KernelKind.ATTENTION, KernelKind.SORT, KernelKind.GATHER):
        assert model.supports(replace(pass_over(8, 8), kind=kind), V4).level == "no"
    assert model.supports(pass_over(8, 8), V4).level == "no"  # no op that computes
    assert model.supports(COLLECTIVE, V4).level == "no"


def test_the_rest_of_a_program_falls_back() -> None:
    row = OpRow(id="row", chip="v4", op="dot_1d_reduce", dtype="f16", shape={"elements": "64"}, time_us=1.0)
    program = from_bytes(op_program(row).text.encode(), name="dot", where="dot")
    lowered = lower(read_workload(program), backend="xla-tpu")
    chain = (ScaleSimTpu(), load_estimator("roofline"))
    names = {answer.estimator for answer in estimate_kernels(lowered, V4, chain).by_key.values()}
    assert names == {"scalesim-tpu"}
    gathered = OpRow(
        id="row", chip="v4", op="copy", dtype="f16", shape={"dims": "64"}, time_us=1.0
    )  # movement: no line
    program = from_bytes(op_program(gathered).text.encode(), name="copy", where="copy")
    lowered = lower(read_workload(program), backend="xla-tpu")
    names = {answer.estimator for answer in estimate_kernels(lowered, V4, chain).by_key.values()}
    assert names == {"roofline"}


def predicted(op: str, shape: dict[str, str], dtype: str, **options: Any) -> Prediction:
    row = OpRow(id="row", chip="v4", op=op, dtype=dtype, shape=shape, time_us=1.0)
    program = from_bytes(op_program(row).text.encode(), name=op, where=op)
    return predict(program, on="tpu-v4", fidelity="simulated", simulator="scalesim-tpu", levers=False, **options)


@pytest.mark.parametrize(
    ("op", "shape", "seconds"),
    [
        ("matmul", {"M": "64", "N": "256", "K": "512"}, 1e-6 * MODEL.products.microseconds(64, 256, 512)),
        ("add", {"dims": "256x512"}, 1e-6 * MODEL.elementwise_us("add", (256, 512))),
    ],
)
def test_named_it_answers_approximately_and_says_so(op: str, shape: dict[str, str], seconds: float) -> None:
    found = predicted(op, shape, "bf16")
    assert found.fidelity == "simulated"
    assert found.provenance.simulated == 1.0
    assert found.step_time_s == pytest.approx(seconds)
    assert found.warnings[0] == "scalesim-tpu: its lines are fitted to f16 alone"
    assert all(warning.startswith("assumed for tpu-v4") for warning in found.warnings[1:])


def test_where_it_has_no_line_the_note_is_not_about_measured_kernels() -> None:
    found = predicted("copy", {"dims": "4096"}, "bf16")
    assert found.fidelity == "analytical"
    assert (
        "most of the step is timed by analytical: simulated does not model the kernels that take it" in found.warnings
    )


def test_in_a_chain_of_defaults_an_approximation_gives_way() -> None:
    row = OpRow(id="row", chip="v4", op="add", dtype="bf16", shape={"dims": "64x64"}, time_us=1.0)
    program = from_bytes(op_program(row).text.encode(), name="add", where="add")
    lowered = lower(read_workload(program), backend="xla-tpu")
    chain = (ScaleSimTpu(), load_estimator("roofline"))
    for named, name in ((False, "roofline"), (True, "scalesim-tpu")):
        found = estimate_kernels(lowered, V4, chain, first_named=named)
        assert {answer.estimator for answer in found.by_key.values()} == {name}


def test_intervals_are_as_wide_as_the_lines_miss() -> None:
    # 36.4 % of products: s = ln 1.364 sqrt(pi / 2), 1.645 of them either way; what the lines were not fitted to has twice that.
    narrow, wide = gemm(256, 256, 256, dtype="f16"), gemm(256, 256, 256)
    found = ScaleSimTpu().estimate([narrow, wide], V4)
    spread = 1.364 ** (1.645 * math.sqrt(math.pi / 2))
    assert found.high / found.time == pytest.approx([spread, spread**2])
    assert found.time / found.low == pytest.approx([spread, spread**2])
    fitted = FittedLines(device="tpu-v4", source="here", products=MODEL.products, error=0.05)
    judged = ScaleSimTpu(fitted).estimate([narrow], V4)
    assert judged.high[0] / judged.time[0] == pytest.approx(1.05 ** (1.645 * math.sqrt(math.pi / 2)))
