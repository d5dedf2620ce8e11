"""Pipelines of small programs, end to end: wiring, times, messages, memory, what does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from meshcast import Options, Part, Pipeline, pipeline_of, predict
from meshcast.base.errors import UsageError
from meshcast.base.mesh import Group
from meshcast.hardware import resolve
from meshcast.hardware.conditions import Conditions
from meshcast.jobs.pipeline import PartWiring
from meshcast.network import plan_collective
from meshcast.options.stacks import load_stack
from meshcast.results import Prediction
from meshcast.workload.graph import Collective

BATCH, DIM = 256, 512
OPTIONS = Options(on="dgx-h100", fidelity="roofline", host="off")


def spec(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


X, W = spec(BATCH, DIM), {"w": spec(DIM, DIM)}


def forward(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"]), {"x": x}


def backward(params: Any, saved: Any, dy: Any, gradients: Any) -> Any:
    _, vjp = jax.vjp(lambda w, x: jnp.tanh(x @ w), params["w"], saved["x"])
    dw, dx = vjp(dy)
    return dx, {"w": gradients["w"] + dw}


def without_sum(params: Any, saved: Any, dy: Any) -> Any:
    return backward(params, saved, dy, {"w": 0.0})


def backward_input(params: Any, saved: Any, dy: Any) -> Any:
    return jax.vjp(lambda x: jnp.tanh(x @ params["w"]), saved["x"])[1](dy)[0], {"dy": dy}


def weight(params: Any, saved: Any, weight_saved: Any, gradients: Any) -> Any:
    (dw,) = jax.vjp(lambda w: jnp.tanh(saved["x"] @ w), params["w"])[1](weight_saved["dy"])
    return {"w": gradients["w"] + dw}


def update(params: Any, gradients: Any, opt_state: Any) -> Any:
    return {"w": params["w"] - opt_state["w"] * gradients["w"]}, opt_state


SAVED = {"x": X}
FORWARD, BACKWARD = (forward, (W, X)), (backward, (W, SAVED, X, W), {"donate_argnums": (3,)})
UPDATE = (update, (W, W, W), {"donate_argnums": (0, 2)})
WHOLE = Part(name="layer", forward=FORWARD, backward=BACKWARD, update=UPDATE)
SPLIT = replace(
    WHOLE, backward=(backward_input, (W, SAVED, X)), weight=(weight, (W, SAVED, {"dy": X}, W), {"donate_argnums": (3,)})
)


def stages(count: int, part: Part = WHOLE, **more: Any) -> Pipeline:
    return pipeline_of([replace(part, count=count)], **{"microbatches": 8, **more})


def answer(pipeline: Pipeline, **more: Any) -> Prediction:
    found = predict(pipeline, OPTIONS, **more)
    assert found.breakdown is not None
    assert found.breakdown.total == pytest.approx(found.step_time_s)
    assert found.pipeline is not None
    for stage in found.pipeline.stages:
        assert stage.busy_s is not None
        assert stage.exposed_communication_s is not None
        assert stage.idle_s is not None
        parts = stage.busy_s + stage.exposed_communication_s + stage.idle_s
        assert parts == pytest.approx(found.step_time_s)
    assert sum(found.to_json()["provenance"].values()) == pytest.approx(1.0)
    return found


def alone(target: Any) -> float:
    found = predict(target, OPTIONS).step_time_s
    assert found is not None
    return found


def test_one_stage_is_its_programs_in_a_row() -> None:
    found = answer(stages(1))
    assert found.step_time_s == pytest.approx(8 * (alone(FORWARD) + alone(BACKWARD)) + alone(UPDATE))
    assert found.devices == 1


def test_a_bubble_and_messages_by_hand() -> None:
    forward_s, backward_s, update_s = alone(FORWARD), alone(BACKWARD), alone(UPDATE)
    pair = Collective(
        kind="collective_permute",
        group=Group(dims=((2, 1),)),
        input_bytes=BATCH * DIM * 4,
        output_bytes=BATCH * DIM * 4,
    )
    send_s = plan_collective(pair, resolve("dgx-h100").for_devices(4)).seconds
    found = answer(stages(4, schedule="gpipe", microbatches=1))
    assert found.step_time_s == pytest.approx(4 * (forward_s + backward_s) + 6 * send_s + update_s)
    assert found.pipeline is not None
    assert found.pipeline.send_bytes == BATCH * DIM * 4
    assert found.pipeline.send_s == pytest.approx(send_s)
    assert [stage.first_device for stage in found.pipeline.stages] == [0, 1, 2, 3]


def test_messages_take_the_links_between_their_stages() -> None:
    """Stages of 4 devices: the first two share a node of 8, the second and third do not."""
    found = answer(stages(3, mesh={"data": 4}))
    assert found.pipeline is not None
    shares = {share.level for share in found.collectives}
    far = resolve("dgx-h100").levels[1]
    assert found.pipeline.send_s is not None
    assert found.pipeline.send_s > BATCH * DIM * 4 / far.bandwidth
    assert shares & {"nvlink", "infiniband"}


def test_memory_by_stage() -> None:
    found = answer(stages(4))
    assert found.pipeline is not None
    saved, weights = BATCH * DIM * 4, DIM * DIM * 4
    for stage, in_flight in zip(found.pipeline.stages, (4, 3, 2, 1), strict=True):
        memory = stage.memory_bytes
        assert stage.in_flight == in_flight
        assert memory["activations"] == in_flight * saved
        assert (memory["parameters"], memory["gradients"], memory["optimizer_state"]) == (weights,) * 3
        assert memory["peak"] == 3 * weights + memory["activations"] + memory["working"]
    assert found.memory.peak == found.pipeline.stages[0].memory_bytes["peak"]


def test_reduction_over_replicas() -> None:
    without, found = answer(stages(2, mesh={"data": 16})), answer(stages(2, mesh={"data": 16}, reduce_over=["data"]))
    group = Group(dims=((16, 1),), axes=("data",), devices=16)
    reduce = Collective(kind="all_reduce", group=group, input_bytes=DIM * DIM * 4, output_bytes=DIM * DIM * 4)
    seconds = plan_collective(reduce, resolve("dgx-h100").for_devices(32)).seconds
    assert without.step_time_s is not None
    assert found.step_time_s == pytest.approx(without.step_time_s + seconds)
    in_buckets = answer(stages(2, mesh={"data": 16}, reduce_over=["data"], buckets=4))
    assert in_buckets.step_time_s is not None
    assert without.step_time_s < in_buckets.step_time_s < without.step_time_s + seconds
    sharded = answer(stages(2, mesh={"data": 16}, reduce_over=["data"], reduce_kind="reduce_scatter"))
    assert {share.kind for share in sharded.collectives} >= {"reduce_scatter", "all_gather"}


def test_replicas_do_not_change_what_each_does() -> None:
    one, many = answer(stages(2)), answer(stages(2, mesh={"data": 65536}))
    assert many.devices == 131072
    assert one.flops == many.flops
    assert one.memory == many.memory


def test_zero_bubble_beats_1f1b_and_needs_the_weights_program() -> None:
    times = {name: answer(stages(4, SPLIT, schedule=name)).step_time_s or 0.0 for name in ("1f1b", "zb-h1", "zb-h2")}
    assert times["zb-h2"] < times["zb-h1"] < times["1f1b"]
    with pytest.raises(
        UsageError, match="schedule zb-h1 splits the backward pass, and part 'layer' has no weight program"
    ):
        predict(stages(4, schedule="zb-h1"), OPTIONS)


def test_virtual_stages() -> None:
    plain, found = (
        answer(stages(4, microbatches=4)),
        answer(stages(4, microbatches=4, virtual_stages=2, schedule="interleaved")),
    )
    assert (plain.devices, found.devices) == (4, 2)
    assert found.pipeline is not None
    assert [stage.parts for stage in found.pipeline.stages] == ["layer 1 + layer 3", "layer 2 + layer 4"]
    with pytest.raises(UsageError, match="3 parts cannot be shared out among stages of 2 each"):
        stages(3, virtual_stages=2)


def test_gradients_that_the_program_does_not_sum() -> None:
    found = answer(stages(2, replace(WHOLE, backward=(without_sum, (W, SAVED, X)))))
    assert any("counted as a pass over memory" in warning for warning in found.warnings)


def test_a_slow_device_slows_its_replica_and_all_wait() -> None:
    pipeline = stages(2, mesh={"data": 4}, reduce_over=["data"])
    healthy = answer(pipeline)
    slow = answer(pipeline, conditions=Conditions(speed={6: 0.5}))
    assert healthy.step_time_s is not None
    assert slow.step_time_s is not None
    assert not healthy.ranks
    assert healthy.step_time_s < slow.step_time_s < 2 * healthy.step_time_s
    assert [(share.first_device, share.devices, share.speed) for share in slow.ranks] == [(2, 2, 0.5), (0, 6, 1.0)]
    assert slow.ranks[1].waiting_s == pytest.approx(slow.step_time_s - healthy.step_time_s)
    with pytest.raises(UsageError, match="no device 8 among 8"):
        predict(pipeline, OPTIONS, conditions=Conditions(speed={8: 0.5}))


def test_what_does_not_fit_names_the_stage() -> None:
    large = {"w": spec(DIM, 2**25)}

    def grows(params: Any, x: Any) -> Any:
        return x + jnp.sum(params["w"]), {"x": x}

    def back(params: Any, saved: Any, dy: Any, gradients: Any) -> Any:
        return dy, {"w": gradients["w"] + jnp.sum(dy)}

    middle = Part(
        name="large", forward=(grows, (large, X)), backward=(back, (large, SAVED, X, large), {"donate_argnums": (3,)})
    )
    found = predict(pipeline_of([WHOLE, middle, WHOLE], microbatches=2), OPTIONS)
    assert not found.feasible
    assert found.step_time_s is None
    assert found.infeasible is not None
    assert "stage 1 (large) is the one that does not fit" in found.infeasible.levers[0]
    assert found.infeasible.demand > found.infeasible.bound
    assert any("no update program" in warning for warning in found.warnings)
    share = found.to_json()["pipeline"]
    assert [stage["memory_bytes"]["parameters"] for stage in share["stages"]] == [DIM**2 * 4, DIM * 2**27, DIM**2 * 4]
    assert [stage["busy_s"] for stage in share["stages"]] == [None] * 3
    assert (share["bubble"], share["send_s"], share["critical_path"]) == (None, None, ())
    assert "working" in str(found)
    assert "busy" not in str(found)


def other_width(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w"])[:, : DIM // 2], {"x": x}


def renamed(params: Any, inputs: Any) -> Any:
    return forward(params, inputs)


def wants_more(params: Any, saved: Any, dy: Any, gradients: Any) -> Any:
    return backward(params, {"x": saved["x"] * saved["scale"]}, dy, gradients)


def no_gradients(params: Any, saved: Any, dy: Any) -> Any:
    return jax.vjp(lambda x: jnp.tanh(x @ params["w"]), saved["x"])[1](dy)[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"forward": (other_width, (W, X))},
            r"takes x as f32\[256,512\] on each device, a, forward gives f32\[256,256\]",
        ),
        (
            {"forward": (renamed, (W, X))},
            "has no argument 'x' for the output of b, forward; its arguments are params, inputs",
        ),
        (
            {"backward": (wants_more, (W, {"x": X, "scale": spec()}, X, W))},
            r"takes saved\['scale'\] \(f32\[\]\), which a, forward does not give as result\[1\]\['scale'\]",
        ),
        ({"backward": (no_gradients, (W, SAVED, X))}, r"has no result 'result\[1\]': where are its gradients"),
        ({"backward": None}, "part 'a' has no backward program"),
        ({"count": 0}, "part 'a' has count 0"),
    ],
)
def test_programs_that_do_not_fit_together(change: dict[str, Any], message: str) -> None:
    first, second = replace(WHOLE, name="a", **change), replace(WHOLE, name="b")
    order = [second, first] if "argument 'x'" in message else [first, second]
    with pytest.raises(UsageError, match=message):
        predict(pipeline_of(order, microbatches=2), OPTIONS)


def test_other_names_are_wired() -> None:
    part = replace(WHOLE, forward=(renamed, (W, X)), count=2)
    found = answer(pipeline_of([part], microbatches=2, wiring=PartWiring(input="inputs")))
    assert found.step_time_s == pytest.approx(answer(stages(2, microbatches=2)).step_time_s)


def test_settings_that_have_no_effect_are_refused() -> None:
    with pytest.raises(UsageError, match="has 2 devices"):
        predict(stages(2), OPTIONS, devices=3)
    with pytest.raises(UsageError, match="given by its file"):
        predict(stages(2), OPTIONS, mesh={"data": 2})
    with pytest.raises(UsageError, match="reduced over 'data', which is no axis of the mesh"):
        stages(2, reduce_over=["data"])
    with pytest.raises(UsageError, match="at least one part"):
        pipeline_of([], microbatches=1)


def test_communication_is_that_of_all_stages() -> None:
    found = answer(stages(2, mesh={"data": 4}, reduce_over=["data"]))
    told = found.communication
    assert told is not None
    assert found.breakdown is not None
    assert sum(group.exposed_s for group in told.groups) == pytest.approx(found.breakdown.exposed_communication)
    assert sum(segment.seconds for segment in told.critical) == pytest.approx(found.step_time_s)
    assert {group.group for group in told.groups} >= {"pipeline", "data"}
    for link in told.links:
        assert link.utilisation == pytest.approx(link.bytes_sent / (link.bandwidth * (found.step_time_s or 0.0)))


def test_overlap_in_vain_is_said_once_and_only_to_who_asked() -> None:
    """No program of this pipeline has experts (one-copy); weights are gathered (fsdp2) in its passes, not in updates."""
    options = Options(
        on="dgx-h100", plan="fsdp=2,pp=2,mbs=1", settings={"batch": "4", "seq": "128"}, fidelity="roofline"
    )
    asked = predict("llama3-tiny", options, overlap="one-copy,fsdp2", levers=False)
    assert [text for text in asked.warnings if "--overlap" in text] == [
        "--overlap: one-copy changes nothing: no token is sent to several experts"
    ]
    brought = predict("llama3-tiny", options, stack="megatron", levers=False)
    assert "one-copy" in load_stack("megatron").overlap
    assert not [text for text in brought.warnings if "--overlap" in text]


def test_overlap_of_a_stack_is_no_warning_of_a_program_either() -> None:
    options = Options(on="dgx-h100", mesh={"data": 2}, settings={"seq": "128"}, fidelity="roofline", levers=False)
    assert not [text for text in predict("llama3-tiny", options, stack="megatron").warnings if "--overlap" in text]
    assert [text for text in predict("llama3-tiny", options, overlap="one-copy").warnings if "--overlap" in text]
