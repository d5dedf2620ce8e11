"""Products on arrays of cells: clocks by hand, energy by part, ZigZag's answers for the same layers."""

from __future__ import annotations

import csv
import itertools
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from meshcast import Options, capture, predict, prepare
from meshcast.estimate.cells import PARTS, CellsAnalytical, energy_by_part, mapped
from meshcast.estimate.cells.energy import array_energy
from meshcast.estimate.cells.mapping import CellMapping, mapped_product
from meshcast.estimate.outside.environment import ZIGZAG
from meshcast.estimate.outside.zigzag_cells import ask_zigzag
from meshcast.estimate.products import ArrayProduct
from meshcast.hardware import CellArray, Device
from meshcast.lower import Kernel, KernelKind
from meshcast.workload import Gemm

ANSWERS = Path(__file__).with_name("zigzag_answers.csv")
ANALOGUE, DIGITAL = Device.load("aimc-28nm"), Device.load("edge-tpu")


def cells_of(device: Device) -> CellArray:
    assert device.cells is not None
    return device.cells


def product(m: int, k: int, n: int, count: int = 1) -> ArrayProduct:
    return ArrayProduct(count=count, m=m, n=n, k=k)


def by_zigzag_s_convention(found: CellMapping, cells: CellArray) -> float:
    """Weights that the cells hold all at once arrive while they compute, there (see `estimate.cells.mapping`)."""
    at_once = found.tiles <= (2 if cells.double_buffered else 1)
    return max(found.work_clocks, found.load_clocks) if at_once else found.clocks


def test_clocks_by_hand() -> None:
    cells = cells_of(ANALOGUE)  # 128 rows, 1024 columns of a bit, 2 bits a step, 64 bits of weights a clock
    found = mapped_product(product(64, 256, 128), 8, 8, cells)
    assert (found.slices, found.steps, found.row_tiles, found.column_tiles) == (8, 4, 2, 1)
    assert found.work_clocks == 64 * 4 * 2
    assert found.load_clocks == 256 * 128 * 8 / 64
    assert found.clocks == 512 + 4096 - 4
    ternary = mapped_product(product(64, 256, 128), 2, 4, cells)
    assert (ternary.slices, ternary.steps) == (2, 2)
    assert ternary.clocks == 64 * 2 * 2 + 1024 - 2
    four = mapped_product(product(64, 256, 128, count=2), 8, 8, replace(cells, arrays=4))
    assert four.work_clocks == 64 * 4
    beside = mapped_product(product(64, 256, 128), 8, 8, replace(cells, double_buffered=True))
    assert beside.clocks == 2048 + max(512, 2048)


def test_fewer_bits_are_never_slower_nor_dearer() -> None:
    for device in (ANALOGUE, DIGITAL):
        cells = cells_of(device)
        for shape in (product(98, 135, 45), product(1024, 144, 16), product(1, 700, 900), product(7, 9, 3, count=32)):
            found = [mapped_product(shape, bits, bits, cells) for bits in (8, 4, 2)]
            clocks = [each.clocks for each in found]
            joules = [sum(array_energy(each, cells).values()) for each in found]
            assert clocks == sorted(clocks, reverse=True)
            assert joules == sorted(joules, reverse=True)


def test_zigzag_s_answers_for_the_same_layers() -> None:
    rows = list(csv.DictReader(ANSWERS.read_text().splitlines()))
    assert {row["device"] for row in rows} == {"aimc-28nm", "edge-tpu"}
    for row in rows:
        cells = cells_of(Device.load(row["device"]))
        shape = product(int(row["m"]), int(row["k"]), int(row["n"]))
        found = mapped_product(shape, int(row["weight_bits"]), int(row["activation_bits"]), cells)
        assert by_zigzag_s_convention(found, cells) == pytest.approx(float(row["clocks"]), rel=0.02), row
        if cells.converter_bits:  # its digital arrays spend on every product alike, and nothing else is told
            parts = array_energy(found, cells)
            # It reads a column that has few rows in its last tile as often as these are a share of all rows.
            read = max(1.0, shape.k / cells.rows) / found.row_tiles
            ours = parts["inputs"] + parts["cells"]
            ours += read * (parts["bit lines"] + parts["converters"] + parts["adders"])
            assert ours == pytest.approx(float(row["array_joules"]), rel=0.02), row


@pytest.mark.skipif(ZIGZAG.release() is None, reason="ZigZag is not installed (meshcast doctor --install zigzag)")
def test_zigzag_itself() -> None:
    cells = cells_of(ANALOGUE)
    found = mapped_product(product(16, 256, 32), 2, 4, cells)
    answer = ask_zigzag(found, cells)
    assert by_zigzag_s_convention(found, cells) == pytest.approx(answer.total, rel=0.10)


def kernel(dtype: str, *, weights: int, **changes: object) -> Kernel:
    made = Kernel(
        name="product", kind=KernelKind.GEMM, dtype=dtype, matrix_flops=2.0 * 98 * 135 * 45, vector_flops=4410.0,
        read_bytes=weights + 6615, written_bytes=2205, operand_bytes=(6615, weights), elements=4410,
        geometry=Gemm(
            batch=1, m=98, n=45, k=135, lhs_dtype=dtype, rhs_dtype=dtype, out_dtype="i32",
            lhs_contracting_minor=True, rhs_contracting_minor=False,
        ),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def test_operands_count_as_they_are_stored() -> None:
    wide = kernel("i4", weights=3038)  # 6,075 weights of 4 bits
    narrow_weights, narrow_inputs = replace(wide, stored_bits=(4, 2)), replace(wide, stored_bits=(2, 4))
    found = [mapped(each, ANALOGUE) for each in (wide, narrow_weights, narrow_inputs)]
    assert [(each.activation_bits, each.weight_bits) for each in found if each is not None] == [(4, 4), (4, 2), (2, 4)]
    seconds = CellsAnalytical().estimate([wide, narrow_weights, narrow_inputs], ANALOGUE).time
    assert max(seconds[1:]) < seconds[0]


@pytest.mark.parametrize("bits", [(8, 2), (2, 8), (4, 2), (8, 8)])
def test_the_narrower_of_two_operands_is_found_in_the_program(bits: tuple[int, int]) -> None:
    """A product in the type of the wider one: padded, widened and turned operands are those that were stored."""
    left, right = (jnp.dtype(f"int{each}") for each in bits)

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        wide = left if bits[0] >= bits[1] else right
        padded = jnp.pad(x, ((0, 0), (1, 1)))
        return jax.lax.dot(padded.astype(wide), w.T.astype(wide), preferred_element_type=jnp.int32)

    program = capture(layer, jax.ShapeDtypeStruct((98, 133), left), jax.ShapeDtypeStruct((45, 135), right))
    run = prepare(program, Options(on="aimc-28nm"))
    found = [mapped(each, ANALOGUE) for each, _ in run.executed if each.matrix_flops]
    assert [(each.activation_bits, each.weight_bits) for each in found if each is not None] == [bits]


def test_intervals_end_at_the_speed_of_light_and_floats_are_warned_of() -> None:
    training = [predict("fqconv-kws", on=device, fidelity="analytical") for device in ("edge-tpu", "aimc-28nm")]
    for each in training:
        assert any("take" in warning and "no f32" in warning for warning in each.warnings)
    for name, device in itertools.product(("fqconv-kws-forward", "fqconv-kws"), ("edge-tpu", "aimc-28nm")):
        light = predict(name, on=device, fidelity="roofline", levers=False)
        told = predict(name, on=device, fidelity="analytical", levers=False)
        assert light.step_time_s is not None
        assert told.timed is not None
        assert told.timed.interval_s[0] >= light.step_time_s * (1 - 1e-9)


def test_floats_are_the_periphery_s() -> None:
    made = kernel("f32", weights=24300)
    assert mapped(made, ANALOGUE) is None
    expected = (made.matrix_flops + made.vector_flops) / ANALOGUE.vector_flops["f32"]
    assert CellsAnalytical().estimate([made], ANALOGUE).time[0] == pytest.approx(expected)


def test_energy_is_that_of_its_parts() -> None:
    made = kernel("i4", weights=1519, stored_bits=(4, 2))
    parts = energy_by_part(made, ANALOGUE)
    assert tuple(parts) == PARTS
    assert CellsAnalytical().estimate([made], ANALOGUE).energy[0] == pytest.approx(sum(parts.values()))
    assert parts["memory"] == 0  # it fits beside the array
    told = CellsAnalytical().explain(made, ANALOGUE)
    joules = {term.name: term.value for term in told.terms if term.unit == "J"}
    assert joules == {f"energy of {part}": value for part, value in parts.items()}
    # One of 45 x 98 sums: 2 slices x 2 steps x 2 tiles of rows are 8 conversions.
    assert parts["converters"] == pytest.approx(0.70108e-12 * 98 * 45 * 8)


@pytest.mark.parametrize("device", ["aimc-28nm", "edge-tpu"])
def test_networks_run_and_ternary_weights_help_the_analogue_array(device: str) -> None:
    found = {
        name: predict(f"{name}-forward", on=device, levers=False)
        for name in ("fqconv-kws-w8a8", "fqconv-kws", "fqconv-kws-w2a2")
    }
    assert {each.fidelity for each in found.values()} == {"analytical"}
    times = [each.step_time_s or 0.0 for each in found.values()]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(("device", "batches"), [("edge-tpu", (64, 128, 512)), ("aimc-28nm", (1, 16, 64))])
def test_a_batch_costs_its_images(device: str, batches: tuple[int, ...]) -> None:
    # Larger than the buffer or not: it runs in parts that fit, and never crosses the link to the host between layers.
    for fidelity in ("analytical", "roofline"):
        times = [
            predict(
                "fqconv-resnet20-forward", on=device, fidelity=fidelity, levers=False, settings={"batch": str(batch)}
            ).step_time_s
            or 0.0
            for batch in batches
        ]
        each = [seconds / batch for seconds, batch in zip(times, batches, strict=True)]
        assert each == sorted(each, reverse=True) or max(each) < 1.1 * min(each)
        assert times[-1] > 0.5 * times[0] * batches[-1] / batches[0]


@pytest.mark.parametrize("device", ["aimc-28nm", "edge-tpu"])
def test_a_prediction_has_its_energy_by_part(device: str) -> None:
    found = predict("fqconv-kws-forward", on=device, levers=False).to_json()
    parts = found["energy_by_part_j"]
    assert list(parts) == [*PARTS, "idle"]
    assert sum(parts.values()) == pytest.approx(found["energy_j"])
    assert (parts["converters"] > 0) == (device == "aimc-28nm")
    assert "energy_by_part_j" not in predict("fqconv-kws-forward", on="h200", levers=False).to_json()
