"""Which of a kernel's bytes are f16, in loops too, whatever it computes in."""

from __future__ import annotations

from meshcast.lower.fused_kernels.f16_bytes import has_halves, with_halves
from meshcast.lower.kernel import Kernel, KernelKind, LoopStep, Schedule
from meshcast.workload.graph import Tensor

TENSORS = (Tensor((64,), "f16"), Tensor((64,), "f32"), Tensor((32,), "f16"))


def test_f16_is_counted_by_values_and_not_by_what_a_kernel_computes_in() -> None:
    kernel = Kernel(
        name="norm", kind=KernelKind.LOOP_FUSION, dtype="f32", reads=(0, 1), operand_bytes=(128, 256), read_bytes=384,
        writes=(1, 2), written_bytes=320,
    )  # fmt: skip
    block = Schedule(inputs=(0, 1), outputs=(1, 2), steps=(kernel,))
    loop = LoopStep(label="while", body=block, trips=3, reads=(0, 1), writes=(1, 2))
    found = with_halves(Schedule(inputs=(0, 1), outputs=(1,), steps=(kernel, loop)), TENSORS)
    assert [each.halves for each, _ in found.walk()] == [(128, 64), (128, 64)]


def test_programs_without_f16_have_nothing_to_count() -> None:
    assert has_halves(TENSORS)
    assert not has_halves(TENSORS[1:2])
