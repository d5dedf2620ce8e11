"""Placements carry over: plans, DTensors, `parallelize_module` and `fully_shard` give the collectives that they mean."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import meshcast
from meshcast.base.errors import InfeasibleError, UnsupportedError, UsageError

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")
if importlib.util.find_spec("torchax") is None:
    pytest.skip("torchax is not installed", allow_module_level=True)

DIM = 64


@pytest.fixture
def world() -> Iterator[Any]:
    """Sixteen processes that do not exist."""
    import torch.distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=16, store=FakeStore())
    try:
        yield lambda **axes: init_device_mesh("cpu", tuple(axes.values()), mesh_dim_names=tuple(axes))
    finally:
        torch.distributed.destroy_process_group()


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(DIM, 4 * DIM, bias=False)
        self.down = torch.nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def layers() -> tuple[Any, tuple[Any, ...]]:
    with torch.device("meta"):
        return torch.nn.Sequential(Mlp(), Mlp()), (torch.empty(32, 16, DIM),)


def collectives(module: Any, args: tuple[Any, ...], **options: Any) -> dict[tuple[str, str], int]:
    """Calls by kind and mesh axes."""
    program = meshcast.capture_torch(module, args, options)
    workload = program.partition().workload()
    found: dict[tuple[str, str], int] = {}
    for collective, count in workload.collectives():
        key = (collective.kind, str(collective.group))
        found[key] = found.get(key, 0) + count
    return found


PLAN = {"*.up.weight": {"tp": 0}, "*.down.weight": {"tp": 1}}


def test_a_plan_splits_as_megatron_does() -> None:
    module, args = layers()
    found = collectives(module, args, mesh={"dp": 4, "tp": 4}, plan=PLAN)
    assert found == {("all_reduce", "tp"): 2}


def test_parallel_styles_say_the_same_as_a_plan(world: Any) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module, args = layers()
    for layer in module:
        parallelize_module(layer, world(dp=4, tp=4)["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    assert collectives(module, args) == {("all_reduce", "tp"): 2}


def test_sequence_parallelism_scatters_and_gathers(world: Any) -> None:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module, args = layers()
    for layer in module:
        styles = {
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(layer, world(dp=4, tp=4)["tp"], styles)
    found = collectives(module, args)
    assert found[("all_gather", "tp")] >= 2
    assert found[("reduce_scatter", "tp")] == 2
    assert ("all_reduce", "tp") not in found


def test_fsdp_gathers_weights_and_scatters_gradients(world: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    train = {"train": True, "loss": lambda y: y.square().mean(), "optimizer": "sgd"}
    counts = {}
    for reshard in (True, False):
        module, args = layers()
        mesh = world(fsdp=16)
        for layer in module:
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(module, mesh=mesh, reshard_after_forward=reshard)
        counts[reshard] = collectives(module, args, **train)
        assert counts[reshard][("reduce_scatter", "fsdp")] == 4
    # Four weights; those that the backward pass reads again are gathered again where they were freed.
    assert counts[False][("all_gather", "fsdp")] == 4
    assert counts[True][("all_gather", "fsdp")] > 4


@pytest.mark.parametrize(("reduce", "scattered"), [(None, 2), ("float32", 4)])
def test_fsdp_runs_in_the_precision_of_its_policy(world: Any, reduce: str | None, scattered: int) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=reduce and getattr(torch, reduce), output_dtype=torch.float32
    )
    module, args = layers()
    mesh = world(fsdp=16)
    for layer in (*module, module):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    options = {"train": True, "loss": lambda y: y.square().mean(), "optimizer": "sgd"}
    workload = meshcast.capture_torch(module, args, options).partition().workload()
    assert set(workload.totals.matrix_flops) == {"bf16"}
    widths = {kind: {c.payload_bytes // (4 * DIM * DIM) for c in seen} for kind, seen in by_kind(workload).items()}
    # Weights of 4 DIM^2 elements are gathered whole; gradients are scattered from as many.
    assert widths["all_gather"] == {2}
    assert widths["reduce_scatter"] == {scattered}


def by_kind(workload: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for collective, _ in workload.collectives():
        found.setdefault(collective.kind, []).append(collective)
    return found


def test_distributed_data_parallel_is_data_parallel(world: Any) -> None:
    train = {"train": True, "loss": lambda y: y.square().mean(), "optimizer": "sgd"}
    module, x = torch.nn.Sequential(Mlp(), Mlp()), torch.empty(32, 16, DIM, device="meta")
    wrapped = torch.nn.parallel.DistributedDataParallel(module)
    expected = collectives(module, (x,), mesh={"dp": 16}, **train)
    assert expected == collectives(wrapped, (x,), **train)
    assert set(expected) == {("all_reduce", "dp")}
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any) -> None:
        wrapped(x).square().mean().backward()
        optimizer.step()

    assert collectives(step, (x,)) == expected
    with pytest.raises(UsageError, match="a mesh of 8 devices for DistributedDataParallel over 16"):
        meshcast.capture_torch(wrapped, (x,), {"mesh": {"dp": 8}})
    with pytest.raises(UnsupportedError, match="submodule 0: DistributedDataParallel is not read here"):
        meshcast.capture_torch(torch.nn.Sequential(wrapped), (x,))


def test_collectives_by_hand_are_refused(world: Any) -> None:
    class Reduced(Mlp):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            torch.distributed.all_reduce(y)
            return y

    with torch.device("meta"):
        module, x = Reduced(), torch.empty(32, DIM)
    with pytest.raises(UnsupportedError, match="c10d::allreduce_ was called by hand"):
        meshcast.capture_torch(module, (x,))


def test_fsdp_over_tensor_parallel_layers(world: Any) -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module, args = layers()
    mesh = world(dp=4, tp=4)
    for layer in module:
        parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(module, mesh=mesh["dp"])
    program = meshcast.capture_torch(module, args)
    assert program.mesh.sizes == {"dp": 4, "tp": 4}
    found = collectives(module, args)
    assert found[("all_gather", "dp")] == 4
    assert found[("all_reduce", "tp")] == 2


def test_uneven_parameters_of_fsdp_lie_on_another_dimension(world: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        module, x = torch.nn.Linear(DIM, 50, bias=False), torch.empty(32, DIM)
    fully_shard(module, mesh=world(fsdp=16))
    text = meshcast.capture_torch(module, (x,)).text
    assert '%arg0: tensor<50x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"fsdp"}]>}' in text


def test_data_parallel_is_what_an_unused_axis_means() -> None:
    module, args = layers()
    found = collectives(module, args, mesh={"dp": 8}, train=True, loss=lambda y: y.square().mean())
    assert set(found) == {("all_reduce", "dp")}


def test_placements_of_torch_in_a_plan(world: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard

    module, args = layers()
    plan = {"*.up.weight": (Replicate(), Shard(0)), "*.down.weight": (Replicate(), Shard(1))}
    assert collectives(module, args, mesh={"dp": 4, "tp": 4}, plan=plan) == {("all_reduce", "tp"): 2}


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"plan": PLAN}, UsageError, "placements without a mesh"),
        ({"mesh": {"tp": 4}, "plan": {"*.upp.weight": {"tp": 0}}}, UsageError, "matches nothing"),
        ({"mesh": {"tp": 4}, "plan": {"*.up.weight": {"pt": 0}}}, UsageError, "no axis 'pt'"),
        ({"mesh": {"tp": 4}, "plan": {"*.up.weight": {"tp": 2}}}, UsageError, "dimension 2 of a tensor of 2"),
        ({"mesh": {"tp": 3}, "plan": PLAN}, InfeasibleError, "not divisible by tp = 3"),
        ({"mesh": {"dp": 3}}, InfeasibleError, "not divisible by dp = 3"),
        ({"mesh": {"dp": 4}, "batch_axes": "data"}, UsageError, "no axis 'data'"),
    ],
)
def test_bad_placements_are_refused(options: dict[str, Any], kind: type[Exception], said: str) -> None:
    module, args = layers()
    with pytest.raises(kind, match=said):
        meshcast.capture_torch(module, args, options)
