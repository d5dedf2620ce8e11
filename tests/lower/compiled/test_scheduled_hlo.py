"""Compiled programs read back: one kernel a launch, named as XLA names it, with bytes that can be counted by hand."""

from __future__ import annotations

import pytest

from meshcast.base.errors import InputError
from meshcast.lower import Kernel, KernelKind, LoopStep, LoweredProgram, lower, lower_hlo
from meshcast.lower.compiled.scheduled_hlo import rows_lie_apart
from meshcast.lower.kernel import BranchStep
from meshcast.simulate.issue_order import plan
from meshcast.workload.graph import Gemm, Reduction

ADD = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
"""
SQUARE = 64 * 64 * 4


def hlo(entry: str, *computations: str) -> str:
    """A scheduled module around the lines of its entry computation."""
    return "\n\n".join(["HloModule m, is_scheduled=true", *computations, f"ENTRY %main {{\n{entry}\n}}", ""])


def kernels(program: LoweredProgram) -> dict[str, Kernel]:
    return {kernel.name: kernel for kernel, _ in program.schedule.walk()}


class TestFusions:
    SIBLINGS = """%fused (p0: f32[64,64], p1: f32[64,64]) -> (f32[64], f32[64,64]) {
  %p0 = f32[64,64]{1,0} parameter(0)
  %p1 = f32[64,64]{1,0} parameter(1)
  %s = f32[64,64]{1,0} add(%p0, %p1)
  %zero = f32[] constant(0)
  %r = f32[64]{0} reduce(%s, %zero), dimensions={1}, to_apply=%add
  %e = f32[64,64]{1,0} exponential(%s)
  ROOT %t = (f32[64]{0}, f32[64,64]{1,0}) tuple(%r, %e)
}
"""
    ENTRY = """  %a = f32[64,64]{1,0} parameter(0)
  %b = f32[64,64]{1,0} parameter(1)
  %both = (f32[64]{0}, f32[64,64]{1,0}) fusion(%a, %b), kind=KIND, calls=%fused
  %r.1 = f32[64]{0} get-tuple-element(%both), index=0
  %e.1 = f32[64,64]{1,0} get-tuple-element(%both), index=1
  %n = f32[64,64]{1,0} negate(%e.1)
  ROOT %out = (f32[64]{0}, f32[64,64]{1,0}) tuple(%r.1, %n)"""

    def read(self, kind: str) -> dict[str, Kernel]:
        return kernels(lower_hlo(hlo(self.ENTRY.replace("KIND", kind), ADD, self.SIBLINGS)))

    def test_several_results_are_one_kernel(self) -> None:
        found = self.read("kInput")
        assert list(found) == ["both", "n"]
        both = found["both"]
        assert both.kind is KernelKind.REDUCTION
        assert both.geometry == Reduction(shape=(64, 64), dims=(1,))
        assert (both.read_bytes, both.written_bytes) == (2 * SQUARE + 4, SQUARE + 64 * 4)
        assert len(both.writes) == 2
        assert found["n"].reads[0] in both.writes

    def test_an_array_that_a_sum_of_it_hands_on_is_no_normalisation_of_its_rows(self) -> None:
        """What is as large as the rows stands beside their sums: no row waits for its own sum before it is written."""
        assert "aside" in self.read("kInput")["both"].flags
        spread = "  %w = f32[64,64]{1,0} broadcast(%r), dimensions={0}\n  %d = f32[64,64]{1,0} divide(%e, %w)\n"
        centred = self.SIBLINGS.replace("  ROOT %t", spread + "  ROOT %t").replace("tuple(%r, %e)", "tuple(%r, %d)")
        assert "aside" not in kernels(lower_hlo(hlo(self.ENTRY.replace("KIND", "kInput"), ADD, centred)))["both"].flags

    def test_a_reduction_in_a_loop_fusion_is_no_reduction(self) -> None:
        both = self.read("kLoop")["both"]
        assert both.kind is KernelKind.LOOP_FUSION
        assert both.geometry is None

    def test_fused_again_on_request(self) -> None:
        given = lower_hlo(hlo(self.ENTRY.replace("KIND", "kInput"), ADD, self.SIBLINGS))
        assert given.lowering == "given"
        again = lower(given.workload, given=False)
        assert again.lowering == "modelled"
        assert "both" not in kernels(again)

    def test_an_unscheduled_module_is_refused(self) -> None:
        text = hlo(self.ENTRY.replace("KIND", "kInput"), ADD, self.SIBLINGS).replace("is_scheduled=true", "x=1")
        with pytest.raises(InputError):
            lower_hlo(text.replace(", x=1", ""))


UPDATE = """%fused_update (p0: f32[12,64], p1: f32[1,64], p2: s32[]) -> f32[12,64] {
  %p0 = f32[12,64]{1,0} parameter(0)
  %p1 = f32[1,64]{1,0} parameter(1)
  %p2 = s32[] parameter(2)
  %n = f32[1,64]{1,0} negate(%p1)
  %c = s32[] constant(0)
  ROOT %u = f32[12,64]{1,0} dynamic-update-slice(%p0, %n, %p2, %c)
}
"""
ELSEWHERE = UPDATE.replace("fused_update", "fused_elsewhere").replace(
    "ROOT %u = f32[12,64]{1,0} dynamic-update-slice(%p0, %n, %p2, %c)",
    "%u = f32[12,64]{1,0} dynamic-update-slice(%p0, %n, %p2, %c)\n  ROOT %m = f32[12,64]{1,0} negate(%u)",
)


def updated(computation: str) -> Kernel:
    name = computation.split()[0]
    entry = f"""  %a = f32[12,64]{{1,0}} parameter(0)
  %b = f32[1,64]{{1,0}} parameter(1)
  %i = s32[] parameter(2)
  ROOT %u.1 = f32[12,64]{{1,0}} fusion(%a, %b, %i), kind=kLoop, calls={name}"""
    return kernels(lower_hlo(hlo(entry, computation)))["u.1"]


def test_an_update_that_is_the_result_happens_in_place() -> None:
    kernel = updated(UPDATE)
    assert len(kernel.updates) == 1
    assert kernel.written_bytes == 64 * 4


def test_an_update_that_is_computed_with_writes_everything() -> None:
    kernel = updated(ELSEWHERE)
    assert not kernel.updates
    assert kernel.written_bytes == 12 * 64 * 4
    assert kernel.read_bytes >= 12 * 64 * 4


def test_copies_are_copies_or_transposes() -> None:
    entry = """  %a = f32[64,32]{1,0} parameter(0)
  %same = f32[64,32]{1,0} copy(%a)
  ROOT %turned = f32[64,32]{0,1} copy(%same)"""
    found = kernels(lower_hlo(hlo(entry)))
    assert found["same"].kind is KernelKind.LOOP_FUSION
    assert "copy" in found["same"].flags
    assert found["turned"].kind is KernelKind.TRANSPOSE
    assert found["turned"].read_bytes == found["turned"].written_bytes == 64 * 32 * 4


def test_a_reduction_is_along_what_lies_in_memory() -> None:
    entry = """  %a = f32[64,32]{0,1} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[64]{0} reduce(%a, %zero), dimensions={1}, to_apply=%add"""
    kernel = kernels(lower_hlo(hlo(entry, ADD)))["r"]
    assert kernel.geometry == Reduction(shape=(32, 64), dims=(0,))


def test_a_product_in_a_triton_fusion_is_a_gemm() -> None:
    fused = """%fused_dot (p0: bf16[64,128], p1: bf16[128,32]) -> bf16[64,32] {
  %p0 = bf16[64,128]{1,0} parameter(0)
  %p1 = bf16[128,32]{1,0} parameter(1)
  %d = bf16[64,32]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %n = bf16[64,32]{1,0} negate(%d)
}
"""
    entry = """  %a = bf16[64,128]{1,0} parameter(0)
  %b = bf16[128,32]{1,0} parameter(1)
  ROOT %g = bf16[64,32]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused_dot, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}"""  # noqa: E501
    program = lower_hlo(hlo(entry, fused))
    kernel = kernels(program)["g"]
    assert kernel.kind is KernelKind.GEMM
    assert isinstance(kernel.geometry, Gemm)
    assert (kernel.geometry.m, kernel.geometry.n, kernel.geometry.k) == (64, 32, 128)
    assert kernel.matrix_flops == 2 * 64 * 32 * 128
    assert kernel.vector_flops == 64 * 32
    launches = {op.launch for op, _ in program.workload.walk() if op.launch is not None}
    assert {(launch.name, launch.fusion, launch.emitter) for launch in launches} == {("g", "kCustom", "__triton_gemm")}


LOOP = """%body (arg: (s32[], f32[64])) -> (s32[], f32[64]) {
  %arg = (s32[], f32[64]{0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %v = f32[64]{0} get-tuple-element(%arg), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %w = f32[64]{0} negate(%v)
  ROOT %out = (s32[], f32[64]{0}) tuple(%next, %w)
}

%condition (arg.1: (s32[], f32[64])) -> pred[] {
  %arg.1 = (s32[], f32[64]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%arg.1), index=0
  %n = s32[] constant(5)
  ROOT %lt = pred[] compare(%i.1, %n), direction=LT
}
"""


def test_loops_are_multiplied_and_branches_kept() -> None:
    branch = """%left (l: f32[64]) -> f32[64] {
  %l = f32[64]{0} parameter(0)
  ROOT %le = f32[64]{0} exponential(%l)
}

%right (r: f32[64]) -> f32[64] {
  %r = f32[64]{0} parameter(0)
  ROOT %ri = f32[64]{0} sine(%r)
}
"""
    entry = """  %a = f32[64]{0} parameter(0)
  %p = s32[] parameter(1)
  %zero = s32[] constant(0)
  %t = (s32[], f32[64]{0}) tuple(%zero, %a)
  %loop = (s32[], f32[64]{0}) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %b = f32[64]{0} get-tuple-element(%loop), index=1
  ROOT %c = f32[64]{0} conditional(%p, %b, %b), branch_computations={%left, %right}"""
    program = lower_hlo(hlo(entry, LOOP, branch))
    assert {kernel.name: count for kernel, count in program.schedule.walk()} == {"next": 5, "w": 5, "le": 1, "ri": 1}
    loop, choice = program.schedule.steps
    assert isinstance(loop, LoopStep)
    assert loop.trips == 5
    assert isinstance(choice, BranchStep)


class TestCollectives:
    ENTRY = """  %a = f32[64]{0} parameter(0)
  %b = f32[64]{0} parameter(1)
  %s = f32[64]{0} all-reduce-start(%a), replica_groups={{0,1}}, to_apply=%add, backend_config={"collective_backend_config":{"is_sync":SYNC}}
  %n = f32[64]{0} negate(%b)
  %d = f32[64]{0} all-reduce-done(%s)
  %m = f32[64]{0} negate(%n)
  ROOT %out = (f32[64]{0}, f32[64]{0}) tuple(%d, %m)"""  # noqa: E501

    def read(self, sync: str) -> LoweredProgram:
        text = hlo(self.ENTRY.replace("SYNC", sync), ADD)
        return lower_hlo(text.replace("is_scheduled=true", "is_scheduled=true, num_partitions=2"))

    def test_started_ones_run_beside_what_follows(self) -> None:
        program = self.read("false")
        assert list(kernels(program)) == ["s", "n", "m"]
        assert "blocking" not in kernels(program)["s"].flags
        found = plan(program.schedule, reorder=False)
        assert found.orders == ((0, 1, 2),)
        assert found.before == ((), (), (1,))

    def test_synchronous_ones_are_waited_for(self) -> None:
        program = self.read("true")
        assert "blocking" in kernels(program)["s"].flags
        assert plan(program.schedule, reorder=False).before == ((), (0,), (0, 1))


class TestStartedCopies:
    """What a loop steps through, copied ahead of its reader."""

    SLICED = """%fused_slice (p: f32[12,64,64], q: s32[]) -> f32[1,64,64] {
  %p = f32[12,64,64]{2,1,0} parameter(0)
  %q = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %part = f32[1,64,64]{2,1,0} dynamic-slice(%p, %q, %zero, %zero), dynamic_slice_sizes={1,64,64}
}
"""
    ENTRY = """  %a = f32[12,64,64]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %b = f32[64,64]{1,0} parameter(2)
  %s = ((f32[12,64,64]{2,1,0}, s32[]), f32[1,64,64]{2,1,0}, u32[]) fusion-start(%a, %i), kind=kLoop, calls=%fused_slice
  %n = f32[64,64]{1,0} negate(%b)
  %d = f32[1,64,64]{2,1,0} fusion-done(%s)
  %m = f32[1,64,64]{2,1,0} negate(%d)
  ROOT %out = (f32[64,64]{1,0}, f32[1,64,64]{2,1,0}) tuple(%n, %m)"""
    FETCHED = """  %a = f32[64,64]{1,0:S(5)} parameter(0)
  %b = f32[64,64]{1,0} parameter(1)
  %s = (f32[64,64]{1,0}, f32[64,64]{1,0:S(5)}, u32[]) copy-start(%a)
  %n = f32[64,64]{1,0} negate(%b)
  %d = f32[64,64]{1,0} copy-done(%s)
  ROOT %m = f32[64,64]{1,0} add(%n, %d)"""

    def test_a_gpu_takes_them_in_turn(self) -> None:
        text = hlo(self.ENTRY, self.SLICED)
        run = lower_hlo(text).on("h200")
        assert list(kernels(run.lowered)) == ["s", "n", "m"]
        assert "beside" not in kernels(run.lowered)["s"].flags
        assert run.timeline.duration >= sum(run.kernels[kernel].time for kernel in kernels(run.lowered).values())

    def test_what_comes_from_the_host_is_copied_beside(self) -> None:
        assert "beside" in kernels(lower_hlo(hlo(self.FETCHED)))["s"].flags

    def test_a_tpu_copies_them_beside(self) -> None:
        found = kernels(lower_hlo(hlo(self.ENTRY, self.SLICED), backend="xla-tpu"))
        assert "beside" in found["s"].flags


@pytest.mark.parametrize(
    ("sides", "shape", "apart"),
    [
        ((16, 1, 1024), (32, 1024, 1024), True),  # a row of sixteen heads
        ((1, 16, 1024), (32, 1024, 1024), False),  # sixteen rows of one head
        ((2, 1024, 1024), (32, 1024, 1024), False),  # two whole heads
        ((8, 1), (32, 2048), True),
        ((1, 8), (32, 2048), False),
        ((4, 1, 256), (32, 1, 196), False),  # a dimension of one is whole
        ((16,), (32, 1024), False),  # of another shape
    ],
)
def test_rows_of_a_tile_lie_apart_where_a_later_dimension_is_not_whole(
    sides: tuple[int, ...], shape: tuple[int, ...], apart: bool
) -> None:
    assert rows_lie_apart(sides, shape) is apart
