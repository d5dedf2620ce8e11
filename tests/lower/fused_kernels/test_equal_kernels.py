"""Fusions that are alike are worked out once, and give what each of them gives on its own."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest

from benchmarks.programs_by_size import chain, layers
from meshcast.lower import lower
from meshcast.lower.fused_kernels import equal_kernels as alike
from meshcast.lower.fused_kernels.equal_kernels import FusedKernels
from meshcast.lower.fused_kernels.fetched_sectors import Member
from meshcast.lower.fused_kernels.fused_kernel import fused_kernel
from meshcast.lower.graph.empty_arrays import empty_values, without_nothing
from meshcast.lower.kernel import CostKey, Kernel
from meshcast.lower.layouts.loop_layouts import with_laid_out_operands
from meshcast.lower.products.narrow_operands import with_both_orders
from meshcast.lower.value_types import ValueTypes
from meshcast.programs.files import from_bytes
from meshcast.workload import read_workload
from meshcast.workload.graph import Cost, Op, OpKind, Tensor
from meshcast.workload.workload import Workload


def workload(text: str) -> Workload:
    return read_workload(from_bytes(text.encode(), name="program", where="test"))


def test_equal_ops_have_one_cost() -> None:
    """Fifty products and fifty additions: two costs."""
    assert len({id(op.cost) for op in workload(chain(100)).body.ops}) == 2


@pytest.mark.parametrize("backend", ["xla-gpu", "xla-tpu", "none"])
@pytest.mark.parametrize("program", [chain, layers])
def test_a_program_of_equal_links_is_made_of_few_kernels(program, backend, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    counted = 0

    def counting(members: Sequence[Member], tensors: Sequence[Tensor], *, cold: bool) -> Kernel:
        nonlocal counted
        counted += 1
        return fused_kernel(members, tensors, cold=cold)

    monkeypatch.setattr(alike, "fused_kernel", counting)
    shared = lower(workload(program(350)), backend=backend)
    assert 0 < counted < 20
    monkeypatch.setattr(
        FusedKernels, "kernel", lambda self, members, cold: fused_kernel(members, self._tensors, cold=cold)
    )
    alone = lower(workload(program(350)), backend=backend)
    assert shared.schedule == alone.schedule


def test_fusions_of_other_wiring_types_or_costs_are_others() -> None:
    """X + x reads one value and x + y two; the costs that rules give are equal otherwise."""
    tensors = [Tensor((4,), "f32")] * 5 + [Tensor((8,), "f32")] * 2
    cost = Cost(kind=OpKind.ELEMENTWISE, dtype="f32", vector_flops=4.0, operand_bytes=(16, 16), written_bytes=16)
    kernels = FusedKernels(tensors)

    def read(*values: int, result: int) -> tuple[int, ...]:
        op = Op(name="stablehlo.add", cost=cost, operands=values, results=(result,), location=f"at {result}")
        made = kernels.kernel([(op, values)], cold=False)
        assert made == fused_kernel([(op, values)], tensors)
        return made.reads

    assert read(0, 0, result=2) == (0,)
    assert read(0, 1, result=3) == (0, 1)
    assert read(1, 0, result=4) == (1, 0)
    assert read(1, 5, result=6) == (1, 5)


def test_equal_kernels_have_one_key_which_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain has two kinds of links, of which the first ones are younger than the others."""
    made = 0
    of = CostKey.of

    def counting(*parts: object) -> CostKey:
        nonlocal made
        made += 1
        return of(*parts)

    monkeypatch.setattr(CostKey, "of", counting)
    lowered = lower(workload(chain(350)))
    kernels = [kernel for kernel, _ in lowered.schedule.walk()]
    assert len(kernels) > 150
    assert len({kernel.cost_key for kernel in kernels}) <= made <= 10


def test_fusions_are_described_once_there_are_two_to_compare() -> None:
    """Of two additions, each a kernel, the first is looked at again when the second comes; a third alone is looked at then."""
    cost = Cost(kind=OpKind.ELEMENTWISE, dtype="f32", vector_flops=4.0, operand_bytes=(16, 16), written_bytes=16)
    other = replace(cost, vector_flops=8.0)
    kernels = FusedKernels([Tensor((4,), "f32")] * 9)
    with patch.object(kernels, "_described", wraps=kernels._described) as described:
        for result, (costs, seen) in enumerate(((cost, 0), (other, 0), (cost, 2), (cost, 3)), 4):
            op = Op(name="stablehlo.add", cost=costs, operands=(0, 1), results=(result,))
            made = kernels.kernel([(op, (0, 1))], cold=False)
            assert (made.writes, made.vector_flops, described.call_count) == ((result,), costs.vector_flops, seen)


def test_what_is_the_only_one_of_its_kind_has_one_key() -> None:
    """That of the kernel with its ages: none is made before these are known, as nobody else would have it."""
    text = """func.func public @main(%x: tensor<1024x1024xf32>, %y: tensor<1024x1024xf32>) -> tensor<1024x1024xf32> {
      %a = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
        : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
      return %a : tensor<1024x1024xf32>
    }"""
    with patch.object(CostKey, "of", side_effect=CostKey.of) as made:
        ((kernel, _),) = [each for each in lower(workload(text)).schedule.walk() if each[0].matrix_flops]
        assert made.call_count == 0
        assert kernel.cost_key is kernel.cost_key
        assert made.call_count == 1


def test_a_key_is_the_same_object_behind_a_copy() -> None:
    """Keys are compared by identity: what a pickle brings back must find what was estimated before."""
    key = CostKey.of("gemm", 1.0)
    assert pickle.loads(pickle.dumps(key)) is CostKey.of("gemm", 1.0) is key
    assert CostKey.of("gemm", 2.0) is not key


def test_passes_that_find_nothing_give_back_what_they_were_given() -> None:
    read = workload(chain(20))
    schedule = lower(read).schedule
    assert with_both_orders(schedule, ValueTypes(read.tensors)) is schedule
    assert without_nothing(read.body.ops, empty_values(read.tensors)) is read.body.ops


def test_products_that_are_laid_out_as_they_want_stay_as_they_are() -> None:
    read = workload(chain(20))
    ordered = [replace(op, cost=replace(op.cost, orders=((0, 1), (0, 1)))) for op in read.body.ops]
    laid_out = with_laid_out_operands(ordered, frozenset(read.body.inputs), ValueTypes(read.tensors), {}, frozenset())
    assert all(made is op for made, op in zip(laid_out, ordered, strict=True))
