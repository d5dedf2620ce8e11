from __future__ import annotations

import json
from dataclasses import fields

import pytest

from meshcast.base.errors import InputError, UnsupportedError
from meshcast.estimate.measurements.kernels import GEOMETRIES, LEFT_OUT, kernel_from_json, kernel_to_json
from meshcast.lower import Kernel, KernelKind, lower
from meshcast.partition import partition
from meshcast.programs import CaptureOptions, load
from meshcast.workload import ReadOptions, read_workload
from meshcast.workload.graph import Attention, Collective, Convolution, Factorisation, Gemm, Indexed, Reduction, Tensor
from meshcast.workload.shapes import SortGeometry, Transform, Window

SHAPED = [
    Gemm(
        batch=2, m=3, n=4, k=5, lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="f32", lhs_contracting_minor=True,
        rhs_contracting_minor=False, precision="HIGHEST",
    ),
    Convolution(
        batch=2, in_channels=3, out_channels=4, in_spatial=(8, 8), out_spatial=(8, 8), kernel=(3, 3), strides=(1, 1),
        padding=((1, 1), (1, 1)), lhs_dilation=(1, 1), rhs_dilation=(1, 1), feature_groups=1, batch_groups=1, macs=9,
        lhs_dtype="bf16", rhs_dtype="bf16", out_dtype="bf16", layout="b01f,01io->b01f",
    ),
    Reduction(shape=(8, 128), dims=(1,)),
    Indexed(table=Tensor((100, 16), "f32"), slice_shape=(1, 16), count=7, unique=True),
    Window(shape=(1, 8, 8, 3), window=(1, 3, 3, 1), strides=(1, 2, 2, 1)),
    SortGeometry(length=100, batch=3, operands=2, top=8),
    SortGeometry(length=100, batch=3, operands=2, minor=False, radix=True),
    Transform(kind="RFFT", lengths=(8, 16), batch=3),
    Attention(batch=1, heads=8, kv_heads=2, q_len=64, kv_len=64, head_dim=32, dtype="bf16", causal=True, backward=False),
    Factorisation(routine="qr", batch=8, rows=64, columns=32),
]  # fmt: skip


def _again(kernel: Kernel) -> Kernel:
    return kernel_from_json(json.loads(json.dumps(kernel_to_json(kernel))))


@pytest.mark.parametrize("geometry", SHAPED, ids=lambda geometry: type(geometry).__name__)
def test_every_geometry_comes_back(geometry: object) -> None:
    kernel = Kernel(name="k", kind=KernelKind.OTHER, dtype="bf16", matrix_flops=1.5, geometry=geometry)  # type: ignore[arg-type]
    assert _again(kernel) == kernel


def test_all_geometries_are_tried() -> None:
    assert {type(geometry) for geometry in SHAPED} == set(GEOMETRIES.values())


def test_flags_updates_and_sizes_come_back() -> None:
    kernel = Kernel(
        name="fusion", kind=KernelKind.LOOP_FUSION, dtype="f32", vector_flops=2e12, transcendentals=3.0, read_bytes=8,
        written_bytes=4, elements=5, flags=frozenset({"cold", "copy"}), updates=(17,), guessed=True, ops=("add", "tanh"),
        writes=(4, 9), stored_bits=(8, 4),
    )  # fmt: skip
    again = _again(kernel)
    assert again.cost_key == kernel.cost_key
    assert again.footprint_bytes == kernel.footprint_bytes
    assert again.ops == kernel.ops
    assert len(again.writes) == 2


def test_no_field_is_forgotten() -> None:
    """A new field of kernels must be written, or be said not to be a cost."""
    written = {
        "name", "kind", "dtype", "matrix_flops", "vector_flops", "transcendentals", "read_bytes", "written_bytes",
        "updates", "writes", "geometry", "picked", "elements", "shape", "flags", "ops", "guessed", "recency",
        "cycles", "on_chip_bytes", "on_chip_written", "pieces", "fetched_bytes", "touched_bytes", "tile", "warps",
        "stored_bits", "programs", "halves",
    }  # fmt: skip
    assert {field.name for field in fields(Kernel) if field.init} == written | LEFT_OUT  # others follow from these


def test_bytes_of_halves_come_back() -> None:
    kernel = Kernel(name="", kind=KernelKind.LOOP_FUSION, dtype="f16", halves=(4096, 1024))
    assert _again(kernel).cost_key == kernel.cost_key


@pytest.mark.parametrize("name", ["gpt2-tiny", "resnet-tiny", "dlrm-tiny", "mixtral-tiny"])
def test_kernels_of_models_come_back(name: str) -> None:
    lowered = lower(read_workload(partition(load(name, CaptureOptions())), ReadOptions()))
    kernels = [kernel for kernel, _ in lowered.schedule.walk()]
    assert kernels
    for kernel in kernels:
        assert _again(kernel).cost_key == kernel.cost_key


def test_collectives_have_no_place() -> None:
    collective = Collective(kind="all_reduce", group=None, input_bytes=1, output_bytes=1)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="collective"):
        kernel_to_json(Kernel(name="", kind=KernelKind.COLLECTIVE, dtype="f32", geometry=collective))


GEMM = {"kind": "gemm", "dtype": "f32"}


@pytest.mark.parametrize(
    "value",
    [
        {}, {"kind": "none"}, {**GEMM, "colour": 1}, {**GEMM, "recency": [[0, 65536], 0]}, {**GEMM, "recency": [[[1]], 0]},
        {**GEMM, "recency": [[], "young"]}, {**GEMM, "recency": [[], 0, [[1, -2]]]},
        {**GEMM, "stored_bits": [8]}, {**GEMM, "stored_bits": ["i8", "i4"]},
    ],
)  # fmt: skip
def test_kernels_of_other_versions(value: dict[str, object]) -> None:
    with pytest.raises(InputError, match="cannot read"):
        kernel_from_json(value)
