"""Hardware that is not as it should be under a pipeline: links, background traffic, other kinds of devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from meshcast import Options, Part, Pipeline, pipeline_of, predict, prepare
from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.base.mesh import Group
from meshcast.hardware import resolve
from meshcast.hardware.conditions import HEALTHY, Conditions, LinkCondition
from meshcast.jobs.pipeline.state import HardwareState, copies, in_state
from meshcast.network.collective import plan_collective
from meshcast.results import Prediction
from meshcast.workload.graph import Collective

BATCH, DIM = 256, 512
OPTIONS = Options(on="dgx-h100", fidelity="roofline", host="off")
TENSOR = AbstractMesh((2,), ("tensor",), axis_types=(AxisType.Auto,))


def spec(*shape: int, axes: tuple[str | None, ...] = ()) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(TENSOR, P(*axes)))


X, W = spec(BATCH, DIM), {"w": spec(DIM, DIM, axes=("tensor",))}
SPLIT_X = spec(BATCH, DIM, axes=(None, "tensor"))


def layer(w: Any, x: Any) -> Any:
    """Its contraction is sharded: an all-reduce over "tensor"."""
    inside = jax.lax.with_sharding_constraint(x, SPLIT_X.sharding)
    return jax.lax.with_sharding_constraint(inside @ w, X.sharding)


def forward(params: Any, x: Any) -> Any:
    return layer(params["w"], x), {"x": x}


def backward(params: Any, saved: Any, dy: Any, gradients: Any) -> Any:
    dw, dx = jax.vjp(layer, params["w"], saved["x"])[1](dy)
    return jax.lax.with_sharding_constraint(dx, X.sharding), {"w": gradients["w"] + dw}


def update(params: Any, gradients: Any) -> Any:
    return {"w": params["w"] - gradients["w"]}


FORWARD = (forward, (W, X), {"out_shardings": (X.sharding, {"x": X.sharding})})
BACKWARD = (backward, (W, {"x": X}, X, W), {"donate_argnums": (3,)})
PART = Part(name="layer", forward=FORWARD, backward=BACKWARD, update=(update, (W, W)), count=2)
# Stages 0 and 1 have the devices 0-3 and 4-7, replicas 0 and 1 the first and the second two of each.
PIPELINE = pipeline_of([PART], microbatches=4, mesh={"data": 2, "tensor": 2}, reduce_over=["data"])


def answer(conditions: Conditions = HEALTHY, pipeline: Pipeline = PIPELINE, **more: Any) -> Prediction:
    found = predict(pipeline, OPTIONS, conditions=conditions, **more)
    assert found.breakdown is not None
    assert found.breakdown.total == pytest.approx(found.step_time_s)
    return found


def seconds(found: Prediction, group: str) -> float:
    return sum(share.seconds for share in found.collectives if share.group == group)


def link(share: float, device: int | None = None, level: str = "nvlink") -> Conditions:
    return Conditions(links=(LinkCondition(level=level, device=device, share=share),))


def step(found: Prediction) -> float:
    assert found.step_time_s is not None
    return found.step_time_s


def test_links_of_all_slow_what_stages_do_inside() -> None:
    healthy, slow = answer(), answer(link(0.1))
    for group in ("tensor", "pipeline", "data"):
        assert seconds(slow, group) > seconds(healthy, group) > 0
    alone = predict(FORWARD, OPTIONS, conditions=link(0.1))
    (reduce,) = (share for share in alone.collectives if share.kind == "all_reduce")
    both = predict(BACKWARD, OPTIONS, conditions=link(0.1))
    inside = 4 * (reduce.seconds + sum(share.seconds for share in both.collectives))
    assert seconds(slow, "tensor") == pytest.approx(inside)


def test_background_traffic_is_a_slower_link() -> None:
    busy = answer(Conditions(background={"nvlink": 0.75}))
    assert step(busy) == step(answer(link(0.25))) > step(answer())


@pytest.mark.parametrize("network", ["alpha-beta", "flow"])
def test_links_of_one_device_slow_its_stage_and_replica(network: str) -> None:
    healthy, one, all_ = (answer(c, network=network) for c in (HEALTHY, link(0.1, 6), link(0.1)))
    assert step(healthy) < step(one) < step(all_)
    assert [(share.first_device, share.devices) for share in one.ranks] == [(2, 4), (0, 4)]
    assert one.ranks[1].waiting_s > 0
    assert not one.warnings


def test_a_reduction_is_timed_on_the_links_of_its_own_stage() -> None:
    """Stage 0 is not concerned, and its row of collectives is what it was."""
    group = Group(dims=((2, 2),), axes=("data",), devices=4)
    size = DIM * DIM * 4 // 2
    reduce = Collective(kind="all_reduce", group=group, input_bytes=size, output_bytes=size)
    cluster = resolve("dgx-h100").for_devices(8)
    level = replace(cluster.levels[0], link_bandwidth=0.1 * cluster.levels[0].link_bandwidth)
    slow = plan_collective(reduce, replace(cluster, levels=(level,)))
    assert seconds(answer(link(0.1, 6)), "data") == pytest.approx(slow.seconds)  # of the busiest stage, which is 1


@pytest.mark.parametrize(("busiest", "level"), [(0, "nvlink"), (1, "infiniband")])
def test_a_reduction_is_timed_where_its_stage_lies(busiest: int, level: str) -> None:
    """Stages of 6 devices in nodes of 8: the first stays inside, the second does not. An update makes one the busiest."""
    parts = [replace(PART, name=str(at), count=1, update=PART.update if at == busiest else None) for at in range(2)]
    pipeline = pipeline_of(parts, microbatches=1, mesh={"data": 3, "tensor": 2}, reduce_over=["data"])
    assert {share.level for share in answer(HEALTHY, pipeline).collectives if share.group == "data"} == {level}


def test_devices_of_another_kind() -> None:
    healthy, mixed, slow = answer(), answer(Conditions(kinds={6: "a100-sxm-80gb"})), answer(Conditions(speed={6: 0.3}))
    assert step(healthy) < step(mixed) < step(slow)
    assert 0.3 < mixed.ranks[0].speed < 1
    assert mixed.ranks[0].first_device == 2
    with pytest.raises(UsageError, match="no device 8 among 8"):
        answer(Conditions(kinds={8: "a100-sxm-80gb"}))
    with pytest.raises(UsageError, match="is a tpu"):
        answer(Conditions(kinds={6: "tpu-v5p"}))


def test_an_update_over_all_replicas_waits_for_the_slowest() -> None:
    wide = AbstractMesh((2, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    whole = {"w": jax.ShapeDtypeStruct((DIM, DIM), jnp.float32, sharding=NamedSharding(wide, P("tensor")))}
    pipeline = replace(PIPELINE, parts=(replace(PART, update=(update, (whole, whole))),))
    found = answer(Conditions(speed={6: 0.5}), pipeline)
    assert [(share.first_device, share.devices, share.speed) for share in found.ranks] == [(2, 4, 0.5), (0, 4, 0.5)]


def test_what_has_no_effect_is_said() -> None:
    far = pipeline_of([replace(PART, count=4)], microbatches=4, mesh={"data": 2, "tensor": 2})
    said = answer(link(0.5, 1, level="infiniband"), far)
    assert said.warnings == ("links of device 1 at level 'infiniband' at 0.5 of their rate have no effect",)
    assert not said.ranks
    assert step(said) == step(answer(HEALTHY, far))
    assert not answer(link(0.5, 6, level="infiniband"), far).warnings
    astra = answer(link(0.5), network="astra")
    assert astra.warnings == ("links of all devices at level 'nvlink' at 0.5 of their rate have no effect",)
    with pytest.raises(UsageError, match="no such level"):
        answer(link(0.5, level="infiniband"))


def test_a_failed_link_is_not_passed_over() -> None:
    with pytest.raises(UnsupportedError, match="links of level nvlink have failed"):
        answer(link(0.0, 6))


def test_a_program_sees_the_devices_and_levels_that_it_has() -> None:
    run = prepare(FORWARD, OPTIONS)
    links = (
        LinkCondition(level="nvlink", share=0.5),
        LinkCondition(level="infiniband", share=0.5),
        LinkCondition(level="nvlink", device=7, share=0.1, links=2),
    )
    state = HardwareState.of(Conditions(speed={6: 0.5, 3: 1.0}, kinds={2: "a100-sxm-80gb"}, links=links))
    assert state.linked() == (7,)
    assert list(state.single) == [2, 6, 7]
    (second,) = copies(state.around(4, 4), 2)
    assert in_state(run, state.everyone, second).options.network.conditions == Conditions(
        speed={0: 0.5}, links=(links[0], replace(links[2], device=1))
    )
    assert in_state(run, state.everyone).options.network.conditions == Conditions(links=links[:1])
    assert in_state(run, HEALTHY) is run


@settings(max_examples=10, deadline=None)
@given(share=st.floats(0.05, 1.0), device=st.integers(0, 7), more=st.floats(0.0, 0.5))
def test_better_links_are_never_slower(share: float, device: int, more: float) -> None:
    worse, better = answer(link(share, device)), answer(link(min(1.0, share + more), device))
    assert step(answer()) <= step(better) <= step(worse)
