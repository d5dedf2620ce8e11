"""Products of quantised operands of equal and of two widths: fewer bits are never slower nor larger, on any kind of device."""

from __future__ import annotations

import pytest

import meshcast as mc
from meshcast.lower import Kernel
from meshcast.programs.files import from_bytes
from meshcast.workload import Gemm

BITS = (2, 4, 8)
DEVICES = ("h200", "a100", "b200", "v100-sxm2-32gb", "tpu-v5e", "tpu-v6e", "edge-tpu", "aimc-28nm")


def text(m: int, k: int, n: int, *, activations: int, weights: int, along: bool) -> str:
    """A product with sums in i32 and a quantised result; `along`: weights lie as N x K."""
    a = f"tensor<{m}x{k}x!quant.uniform<i{activations}:f32, 0.1>>"
    w = (
        f"tensor<{n}x{k}x!quant.uniform<i{weights}:f32, 0.05>>"
        if along
        else f"tensor<{k}x{n}x!quant.uniform<i{weights}:f32, 0.05>>"
    )
    sums, out = (f"tensor<{m}x{n}x!quant.uniform<i{bits}:f32, 0.1>>" for bits in (32, activations))
    return f"""
    func.func @main(%a: {a}, %w: {w}) -> {out} {{
      %0 = stablehlo.dot_general %a, %w, contracting_dims = [1] x [{int(along)}] : ({a}, {w}) -> {sums}
      %1 = stablehlo.uniform_quantize %0 : ({sums}) -> {out}
      return %1 : {out}
    }}
    """


def read(*shape: int, activations: int, weights: int, along: bool = True) -> mc.Program:
    made = text(*shape, activations=activations, weights=weights, along=along)
    return from_bytes(made.encode(), name="product", where="product.mlir")


def widened_first(m: int, k: int, n: int, device: str) -> float:
    """Seconds of loops that make bytes of both operands."""
    lines = [
        f"%{name} = stablehlo.convert %{given} : (tensor<{rows}x{columns}xi4>) -> tensor<{rows}x{columns}xi8>"
        for name, given, rows, columns in (("0", "a", m, k), ("1", "w", k, n))
    ]
    made = f"""
    func.func @main(%a: tensor<{m}x{k}xi4>, %w: tensor<{k}x{n}xi4>) -> (tensor<{m}x{k}xi8>, tensor<{k}x{n}xi8>) {{
      {lines[0]}
      {lines[1]}
      return %0, %1 : tensor<{m}x{k}xi8>, tensor<{k}x{n}xi8>
    }}
    """
    parts = mc.predict(
        from_bytes(made.encode(), name="loops", where="loops.mlir"), on=device, fidelity="analytical"
    ).breakdown
    assert parts is not None
    return parts.compute + parts.memory + parts.overhead


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("shape", [(512, 1024, 2048), (16, 4096, 1024)])
def test_fewer_bits_of_either_operand_cost_no_more_than_what_widens_them_and_are_never_larger(
    device: str, along: bool, shape: tuple[int, int, int]
) -> None:
    found = {}
    for a in BITS:
        for w in BITS:
            answer = mc.predict(read(*shape, activations=a, weights=w, along=along), on=device, fidelity="analytical")
            parts = answer.breakdown
            assert parts is not None
            found[a, w] = parts.compute + parts.memory + parts.overhead, answer.memory.peak
    gpu = mc.Device.load(device).kind == "gpu"
    conversion = 1.1 * widened_first(*shape, device) if gpu else 0.0  # elsewhere it hides beside the arrays
    for (a, w), (seconds, peak) in found.items():
        for wider in ((2 * a, w), (a, 2 * w), (2 * a, 2 * w)):
            if wider in found:
                assert seconds <= found[wider][0] * (1 + 1e-9) + conversion, (a, w, wider, found)
                assert peak <= found[wider][1], (a, w, wider, found)


def convolved(batch: int, side: int, channels: int, filters: int, *, activations: int, weights: int) -> mc.Program:
    """Windows of 3 x 3 with sums in i32 and a quantised result."""
    image = f"tensor<{batch}x{side}x{side}x{channels}x!quant.uniform<i{activations}:f32, 0.1>>"
    kernel = f"tensor<3x3x{channels}x{filters}x!quant.uniform<i{weights}:f32, 0.05>>"
    sums, out = (
        f"tensor<{batch}x{side}x{side}x{filters}x!quant.uniform<i{bits}:f32, 0.1>>" for bits in (32, activations)
    )
    numbers = (
        "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]}"
    )
    groups = "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    made = f"""
    func.func @main(%a: {image}, %w: {kernel}) -> {out} {{
      %0 = stablehlo.convolution(%a, %w) {numbers} {groups} : ({image}, {kernel}) -> {sums}
      %1 = stablehlo.uniform_quantize %0 : ({sums}) -> {out}
      return %1 : {out}
    }}
    """
    return from_bytes(made.encode(), name="convolution", where="convolution.mlir")


def hold(programs: dict[tuple[int, int], mc.Program], device: str, fidelity: str) -> None:
    """No program is slower than one of the same or more bits of both operands."""
    found = {}
    for bits, program in programs.items():
        parts = mc.predict(program, on=device, fidelity=fidelity, lowering="modelled", levers=False).breakdown
        assert parts is not None
        found[bits] = parts.compute + parts.memory + parts.overhead
    for few, seconds in found.items():
        for many, others in found.items():
            if few[0] <= many[0] and few[1] <= many[1]:
                assert seconds <= others * (1 + 1e-5), (device, fidelity, few, many, seconds, others)


PAIRS = [(a, w) for a in BITS for w in BITS]


@pytest.mark.parametrize(
    "device", ["tpu-v4", "tpu-v6e", "trainium2", "gaudi3", "edge-tpu", "aimc-28nm", "v100-sxm2-32gb", "h200"]
)
def test_a_bound_does_not_rise_with_fewer_bits(device: str) -> None:
    """What widens operands is no part of it: on a TPU's vector units that took six times as long as the bytes."""
    for m, k, n in ((1, 4096, 4096), (7, 8192, 40)):
        hold({(a, w): read(m, k, n, activations=a, weights=w) for a, w in PAIRS}, device, "roofline")
    for batch, side, channels in (
        (64, 32, 16),
        (1, 30, 3),
    ):  # the second is cut in pieces, whose edges are widened twice
        hold(
            {(a, w): convolved(batch, side, channels, 16, activations=a, weights=w) for a, w in PAIRS},
            device,
            "roofline",
        )


@pytest.mark.parametrize("fidelity", ["analytical", "simulated"])
@pytest.mark.parametrize("device", ["v100-sxm2-32gb", "h200"])
def test_convolutions_are_tiled_by_what_the_unit_takes(device: str, fidelity: str) -> None:
    """A V100 computes all of them in f16: tiles of packed bytes made 2 by 2 bits three times as slow as 8 by 8."""
    programs = {(a, w): convolved(64, 32, 16, 16, activations=a, weights=w) for a, w in PAIRS}
    hold(programs, device, fidelity)


def test_a_unit_for_four_bits_is_faster_than_one_for_eight() -> None:
    seconds = [
        mc.predict(read(4096, 4096, 4096, activations=bits, weights=bits), on="a100", fidelity="analytical").step_time_s
        for bits in (4, 8)
    ]
    assert None not in seconds
    assert seconds[0] < 0.7 * seconds[1]  # type: ignore[operator]


def test_a_product_reads_the_narrower_operand_as_it_is_stored() -> None:
    lowered = read(512, 1024, 2048, activations=8, weights=4).workload().lower()
    first, *_ = (step for step in lowered.schedule.steps if isinstance(step, Kernel))
    assert isinstance(first.geometry, Gemm)
    assert (first.geometry.lhs_dtype, first.geometry.rhs_dtype, first.dtype) == ("i8", "i4", "i8")
    assert first.read_bytes == 512 * 1024 + 1024 * 2048 // 2
