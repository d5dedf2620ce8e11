"""Recommenders' steps in eager PyTorch: launches in order, the host beside the device, tables between the layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshcast.base import UsageError
from meshcast.hardware import load_device
from meshcast.jobs import (
    BagKernels,
    Distribution,
    EmbeddingKernels,
    EmbeddingTable,
    LookUps,
    bag_launches,
    batched_launches,
    eager_dense,
    eager_step,
    layers_for,
    torchrec_launches,
)
from meshcast.jobs.embedding_tables.dense import DensePart, dense_part, precision_named
from meshcast.jobs.embedding_tables.dense_calls import written_step
from meshcast.jobs.embedding_tables.issued import PARTS, EagerDense, Issued, work
from meshcast.simulate import CallCosts
from meshcast.zoo import DenseLayers, SequenceLayers

H200 = load_device("h200")
LAYERS = DenseLayers(features=4, dim=16, bottom=(32, 16), top=(64, 1))
KERNELS = EmbeddingKernels(device=H200)
COSTS = CallCosts(view=1.0, call=10.0, module=0.0, cast=0.0, compiled=20.0, library=0.0, parameter=0.0, kernel=2.0)


def _works(count: int, bags: int = 1024, dim: int = 32) -> list[LookUps]:
    picked = Distribution().over(100_000)
    return [LookUps(picked=picked, dim=dim, element_bytes=4, look_ups=bags, bags=bags) for _ in range(count)]


def test_a_step_is_as_long_as_the_slower_of_host_and_device() -> None:
    launches = [Issued(part="bottom", seconds=5.0, work=work(views=3, calls=1)), Issued(part="above", seconds=1.0)]
    step = eager_step(launches, COSTS)
    assert (step.device_s, step.host_s) == (6.0, 3 + 10 + 2 + 2)
    assert step.step_s == 17.0
    assert eager_step([Issued(part="bottom", seconds=50.0, work=work(calls=1))], COSTS).step_s == 50.0


def test_tables_stand_before_the_layers_that_read_them_and_after_their_gradients() -> None:
    dense = EagerDense(launches=tuple(Issued(part=part, seconds=1.0) for part in PARTS), memory_bytes=0.0)
    tables = [Issued(part="look_up", seconds=7.0), Issued(part="update", seconds=8.0)]
    found = [(each.part, each.seconds) for each in dense.with_tables(tables)]
    assert found[:4] == [("input", 1.0), ("look_up", 7.0), ("look_up", 1.0), ("bottom", 1.0)]
    assert found[-3:] == [("update", 1.0), ("update", 8.0), ("optimizer", 1.0)]


def test_every_call_belongs_to_the_part_that_began_before_it() -> None:
    written = written_step(LAYERS, 8, "float32")
    parts = [written.part_of(number) for number in range(len(written.recording.ops))]
    assert list(dict.fromkeys(parts)) == list(PARTS[1:])  # a batch is brought in by a trainer
    optimizer = [op.name for op, part in zip(written.recording.ops, parts, strict=True) if part == "optimizer"]
    assert optimizer[-5:] == [
        "_foreach_addcmul_", "_foreach_sqrt", "_foreach_add_", "_foreach_mul", "_foreach_addcdiv_",
    ]  # fmt: skip


def test_products_in_fp32_take_longer_than_on_tensor_cores() -> None:
    layers = DenseLayers(features=4, dim=64, bottom=(512, 64), top=(1024, 1024, 1))
    plain, tensor = (eager_dense(layers, "h200", 8192, precision) for precision in ("float32", "tf32"))
    assert len(plain.launches) == len(tensor.launches)
    assert plain.seconds("above") > 2 * tensor.seconds("above")
    assert plain.seconds("optimizer") == tensor.seconds("optimizer")


def test_one_kernel_looks_all_tables_up_or_one_each() -> None:
    works = _works(5)
    batched, bags = list(batched_launches(works, KERNELS)), list(bag_launches(works, KERNELS))
    assert [each.part for each in batched].count("look_up") == 1
    assert [each.part for each in bags] == ["look_up"] * 5 + ["update"] * 5 + ["optimizer"] * 5


def test_a_bags_gradients_are_picked_by_a_block_each() -> None:
    kernels = BagKernels(kernels=KERNELS)
    few, many, wide = (
        float(kernels.picked(KERNELS.traffic(_works(1, bags, dim)[0]))) - kernels.parameters.pick_start_s
        for bags, dim in ((10_000, 16), (20_000, 16), (10_000, 64))
    )
    assert many == pytest.approx(2 * few)
    assert wide == pytest.approx(few)


def test_the_host_is_part_of_a_dense_part_unless_it_is_off() -> None:
    counted, off = (dense_part(LAYERS, "h200", 64, host=host) for host in ("slow", "off"))
    assert counted.host_s > counted.seconds > 0.0 == off.host_s
    assert counted.gradient_bytes == 4 * (13 * 32 + 32 + 32 * 16 + 16 + 26 * 64 + 64 + 64 + 1)
    assert isinstance(off, DensePart)


def test_precisions_have_the_names_that_people_write() -> None:
    assert [precision_named(word) for word in ("f32", "FP32", "bf16", "half", "tf32")] == [
        "float32", "float32", "bfloat16", "float16", "tf32",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no precision 'f64'"):
        dense_part(LAYERS, "h200", 64, dtype="f64")


def _of_torchrec(**more: int) -> list[Issued]:
    sizes = {"tables": 26, "shared": 2, "ranks": 8, "parameters": 14, "kinds": 2} | more
    return list(
        torchrec_launches(
            **sizes,
            launch_s=1e-6,
            sum_s=1.5e-6,
            look_up_s=2e-6,
            update_s=3e-6,
            exchange_s=4e-6,
            reduce_s=5e-6,
        )
    )


def test_torchrecs_calls_grow_with_ranks_parameters_and_kinds_of_sharding() -> None:
    base = len(_of_torchrec())
    assert len(_of_torchrec(ranks=16)) - base == 8  # a piece of pooled rows' gradients a rank
    assert len(_of_torchrec(parameters=15)) - base == 1
    assert len(_of_torchrec(shared=3)) - base == 1 + 4
    names = [each.name for each in _of_torchrec()]
    assert (names.count("all-to-all"), names.count("all-reduce")) == (5, 3)
    assert [each.part for each in _of_torchrec() if each.name == "sum"] == ["input", "loss"]  # lengths, and the loss
    assert sum(each.work[-1] for each in _of_torchrec()) == 1  # sizes are read by the host


def test_a_sequence_models_layers_are_predicted_on_as_many_rows_as_its_longest_table_gives() -> None:
    tables = (
        EmbeddingTable(name="item", rows=1000, dim=64, pooling=128, pooled=False),
        EmbeddingTable(name="user", rows=1000, dim=64, pooled=False),
    )
    layers = layers_for("dlrm-hstu", tables)
    assert isinstance(layers, SequenceLayers)
    assert (layers.tokens, layers.dim) == (128, 64)
    small = replace(layers, layers=1, heads=2, head=32)
    part = dense_part(small, "h200", 4, dtype="bf16")
    weights = 64 * 4 * 64 + 4 * 64 + 3 * 64 * 64 + 2 * 64 + 2 * 64 + 64 * 512 + 512 + 512 + 1
    assert part.gradient_bytes == 4 * weights
    assert part.bottom_forward_s == part.bottom_backward_s == 0.0 < part.forward_s < part.backward_s
    with pytest.raises(UsageError, match="fused attention in float32"):
        dense_part(small, "h200", 4, dtype="fp32")
    with pytest.raises(UsageError, match="all pooled"):
        layers_for("hstu", tuple(replace(each, pooled=True) for each in tables))


def test_rows_of_several_lengths_are_joined_and_not_multiplied() -> None:
    tables = tuple(EmbeddingTable(name=f"t{dim}", rows=100, dim=dim) for dim in (16, 64, 112))
    layers = layers_for("dcnv2-criteo", tables)
    assert isinstance(layers, DenseLayers)
    assert layers.read == 16 + 64 + 112 + 64  # the bottom layers' result is as wide as the mean
    with pytest.raises(UsageError, match="rows of one length, and tables have rows of 16, 64, 112 columns"):
        layers_for("dlrm-criteo", tables)
