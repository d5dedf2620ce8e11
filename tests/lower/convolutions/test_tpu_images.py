"""Images that enter or leave a program on TPUs: laid out anew around convolutions, split where the batch is small."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import meshcast as mc
from meshcast.estimate.compiled import CompilerCycles
from meshcast.hardware import load_device
from meshcast.lower.compiled.scheduled_hlo import lower_hlo
from meshcast.lower.convolutions.tpu_images import ImageDimension, as_outside
from meshcast.lower.kernel import Kernel
from meshcast.programs import from_bytes
from meshcast.workload import Convolution, Tensor

ORDER = ("NCHW", "OIHW", "NCHW")


def program(batch: int, channels: int, side: int, layers: int = 1, dtype: object = jnp.float16) -> mc.Program:
    """Convolutions of 3 x 3 without padding, 32 channels each."""

    def run(image: jax.Array, *filters: jax.Array) -> jax.Array:
        for each in filters:
            image = jax.lax.conv_general_dilated(image, each, (1, 1), "VALID", dimension_numbers=ORDER)
        return image

    image = jax.ShapeDtypeStruct((batch, channels, side, side), dtype)
    filters = [jax.ShapeDtypeStruct((32, 32 if at else channels, 3, 3), dtype) for at in range(layers)]
    return mc.capture(run, image, *filters)


def kernels(captured: mc.Program, on: str = "tpu-v4") -> list[Kernel]:
    return [kernel for kernel, _ in captured.on(on).lowered.schedule.walk()]


def test_a_single_image_is_split_and_laid_out_twice_on_either_side() -> None:
    made = kernels(program(1, 3, 64))
    names = [kernel.name.partition(":")[2] for kernel in made]
    assert names == ["relayout", "relayout", "convolution", "relayout", "cut", "relayout"]
    shape = made[2].geometry
    assert isinstance(shape, Convolution)
    assert (shape.batch, shape.in_spatial, shape.out_spatial) == (8, (64, 10), (62, 8))
    # Of 62 rows of 8 pixels each: a tile of 8 images, 32 channels in 128 lanes.
    assert made[3].elements == 62 * 8 * 1024
    assert made[2].written_bytes == made[3].read_bytes == 62 * 8 * 1024 * 2


def test_layers_between_stay_as_they_are() -> None:
    names = [kernel.name for kernel in kernels(program(1, 3, 64, layers=3))]
    assert [name for name in names if "conv" not in name] == [
        "image:relayout", "image:relayout", "image:relayout", "image:cut", "image:relayout",
    ]  # fmt: skip
    assert "convolution" in names[2]
    assert "convolution" in names[4]


def test_eight_images_are_not_split_and_gpus_have_no_such_copies() -> None:
    names = [kernel.name for kernel in kernels(program(8, 3, 64))]
    assert [name for name in names if name.startswith("image:")] == ["image:relayout", "image:relayout"]
    assert not any(kernel.name.startswith("image:") for kernel in kernels(program(1, 3, 64), "h200"))


def test_what_lies_outside_has_the_fewest_tiles() -> None:
    """Rows of 64 fill half of the lanes; 128 images fill them."""
    assert (
        as_outside(Tensor((128, 64, 64, 64), "bf16"), "bf01").lanes,
        as_outside(Tensor((1, 3, 256, 256), "bf16"), "bf01").lanes,
    ) == (ImageDimension.BATCH, "1")


@pytest.mark.parametrize("sizes", [(64, 64, 64, 4), (8, 8, 8, 16)])
def test_rows_as_many_as_images_are_no_images(sizes: tuple[int, ...]) -> None:
    """Lanes and sublanes hold the height or the width, of which there are as many as of the batch: laid out anew all the same."""

    def run(image: jax.Array, filters: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(image, filters, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    outside = as_outside(Tensor(sizes, "bf16"), "b01f")
    assert {outside.lanes, outside.sublanes} & {"0", "1"}
    image, filters = (jax.ShapeDtypeStruct(each, jnp.bfloat16) for each in (sizes, (3, 3, sizes[-1], 32)))
    made = kernels(mc.capture(run, image, filters))
    assert made[0].name == "image:relayout"
    assert made[0].reads == (0,)


@pytest.mark.parametrize(("side", "measured_us"), [(256, 351.36), (1024, 4919.8), (4096, 77772.0)])
def test_as_published_on_a_v4(side: int, measured_us: float) -> None:
    """SCALE-Sim-validation, `trace_general`: without these copies a fifth is predicted. Of 64 x 64, all latencies, 0.6."""
    predicted = program(1, 3, side).on("tpu-v4", fidelity="analytical").timeline.duration
    assert 0.75 < predicted * 1e6 / measured_us < 1.25


COPY = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(bf16[256,512]{1,0:T(8,128)(2,1)})->bf16[256,512]{0,1:T(8,128)(2,1)}}

ENTRY %main (x: bf16[256,512]) -> bf16[256,512] {
  %x = bf16[256,512]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %copy.1 = bf16[256,512]{0,1:T(8,128)(2,1)} copy(%x), backend_config={"window_config":{"estimated_cycles":"12345"}}
}
"""  # noqa: E501


def test_the_compiler_s_cycles_of_a_copy_between_layouts_are_taken() -> None:
    lowered = lower_hlo(COPY, backend="xla-tpu")
    (copy,) = [kernel for kernel, _ in lowered.schedule.walk()]
    device = load_device("tpu-v4")
    assert copy.cycles == 12345
    assert CompilerCycles().supports(copy, device).level == "yes"
    assert CompilerCycles().estimate([copy], device).time[0] == pytest.approx(12345 / device.clock_hz)


def test_a_convolution_without_spatial_dimensions_is_left_alone() -> None:
    text = """module { func.func @main(%a: tensor<2x4xf32>, %w: tensor<4x8xf32>) -> tensor<2x8xf32> {
  %0 = stablehlo.convolution(%a, %w) dim_numbers = [b, f]x[i, o]->[b, f], window = {} {batch_group_count = 1 : i64,
    feature_group_count = 1 : i64} : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32> } }"""
    assert not any(
        kernel.name.startswith("image:") for kernel in kernels(from_bytes(text.encode(), name="flat", where="flat"))
    )


@pytest.mark.parametrize("device", ["aimc-28nm", "edge-tpu"])
def test_arrays_of_cells_and_edge_accelerators_read_images_as_they_lie(device: str) -> None:
    """They have no vectors of sublanes and lanes: nothing is copied, and eight images take at least as long as seven."""
    assert [kernel.name for kernel in kernels(program(1, 3, 64), device) if kernel.name.startswith("image")] == []
    times = [
        mc.predict(program(batch, 3, 64), on=device, fidelity="analytical").step_time_s or 0.0 for batch in (7, 8, 16)
    ]
    assert 0 < times[0] <= times[1] <= times[2]
    assert times[1] < 1.5 * times[0]
