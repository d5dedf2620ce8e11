"""A model under a plan: refused with the reason and the numbers, or a program, or a pipeline of equal parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshcast import Options, predict, prepare
from meshcast.base.errors import InfeasibleError, MeshcastError, UnsupportedError, UsageError
from meshcast.hardware import load_device
from meshcast.jobs.described import asked_of
from meshcast.jobs.pipeline import Pipeline
from meshcast.jobs.planned import Plan, attention_of, model_of, plan_target, planned_model
from meshcast.lower import lower_compiled
from meshcast.partition import partition
from meshcast.programs.program import Program
from meshcast.workload import Collective, read_workload
from meshcast.zoo.sharding import MeshLayout


@pytest.mark.parametrize(
    ("model", "plan", "settings", "error", "said"),
    [
        ("llama3-8b", "tp=6", {}, InfeasibleError, "attention heads of llama3-8b: 32 is not divisible by tp=6"),
        ("llama3-8b", "ep=4", {}, InfeasibleError, "ep=4 splits experts, and llama3-8b has none"),
        ("mixtral-8x7b", "ep=3", {}, InfeasibleError, "experts of mixtral-8x7b: 8 is not divisible by ep=3"),
        ("llama3-8b", "cp=3", {"seq": "4096"}, InfeasibleError, "the sequence of llama3-8b: 4096 is not divisible by cp=3"),
        ("llama3-8b", "dp=8,mbs=3", {"batch": "64"}, InfeasibleError, "64 is no multiple of 24"),
        ("llama3-8b", "pp=5", {"batch": "8"}, InfeasibleError, "32 layers of llama3-8b cannot be shared out evenly over pp=5"),
        ("llama3-8b", "pp=2,layers-per-stage=1+2", {"batch": "8"}, InfeasibleError, "adds up to 3, and llama3-8b has 32"),
        ("llama3-8b", "pp=4", {}, UsageError, "needs the global batch"),
        ("llama3-8b", "pp=4,dp=2,zero=2", {"batch": "8"}, InfeasibleError, "zero=2"),
        ("bert-base", "pp=4", {"batch": "8"}, UnsupportedError, "cannot be cut into stages"),
        ("bert-base", "tp=2,sp=1", {}, UnsupportedError, "has no sequence_parallel"),
        ("resnet50", "dp=8,zero=1", {}, UnsupportedError, "has no zero"),
        ("resnet50", "offload=optimizer", {}, UnsupportedError, "have its update apart"),
        ("resnet50", "remat=full", {}, UnsupportedError, "has no remat"),
        ("resnet50", "tp=2", {}, InfeasibleError, "tp=2 splits attention heads, and resnet50 has none"),
        ("resnet50", "cp=2", {}, InfeasibleError, "cp=2 splits the sequence"),
        ("llama3-8b", "tp=64", {}, InfeasibleError, "use tp=32"),
        ("llama3-8b", "tp=8", {"vocab": "1001"}, InfeasibleError, "use tp=7 or 11"),
        ("llama3-8b", "cp=2", {"seq": "129"}, InfeasibleError, "use cp=1 or 3"),
        ("llama3-8b", "cp=2,tp=2,sp=1", {"seq": "34"}, InfeasibleError, "34 is not divisible by cp=2 x tp=2"),
        ("qwen2.5-7b", "tp=7", {}, InfeasibleError, "key heads: 4 is not divisible by tp=7"),
        ("mixtral-8x7b", "ep=16", {}, InfeasibleError, "use ep=8"),
        ("llama3-8b", "pp=64", {"batch": "64"}, InfeasibleError, "32 parts are even"),
        ("llama3-8b", "pp=3", {"batch": "8"}, InfeasibleError, "use layers-per-stage=11x2+10; 2 or 4 parts"),
        ("llama3-8b", "pp=4,vp=2", {"batch": "11"}, InfeasibleError, "use 10 or 12 microbatches (a batch of 10 or 12)"),
        ("llama3-8b", "dp=2,mbs=2,microbatches=3", {"batch": "8"}, InfeasibleError, "makes 2 microbatches of 4"),
        ("llama3-8b", "dp=2", {"batch": "0"}, UsageError, "positive integer"),
        ("llama3-8b", "pp=2", {"batch": "2", "seq": "0"}, UsageError, "positive integer"),
        ("llama3-8b", "dp=2", {"accumulate": "2"}, UsageError, "decided by the plan"),
        ("llama3-8b", "dp=2", {"batch": "many"}, UsageError, "positive integer"),
        ("llama3-8b", "pp=2", {"batch": "8", "accumulate": "2"}, UsageError, "accumulate"),
        ("llama3-8b-decode", "dp=2,pp=2", {}, UnsupportedError, "pp is for training"),
        ("llama9-8b", "dp=2", {}, UsageError, "did you mean"),
        ("llama3-8b-serve", "dp=2", {}, UsageError, "name it llama3-8b, with --set mode=serve"),
        ("dlrm-tiny-forward", "dp=2", {}, UsageError, "dlrm-tiny has no mode 'forward'"),
    ],
)  # fmt: skip
def test_what_is_refused(
    model: str, plan: str, settings: dict[str, str], error: type[MeshcastError], said: str
) -> None:
    with pytest.raises(error) as caught:
        plan_target(model, Plan.parse(plan), settings=settings)
    assert said in str(caught.value)


def test_devices_are_the_products() -> None:
    with pytest.raises(InfeasibleError, match=r"for 8 devices \(dp=2 x tp=4\), not 16"):
        plan_target("llama3-tiny", Plan.parse("dp=2,tp=4"), devices=16)


@pytest.mark.parametrize(
    ("platform", "call"),
    [("cuda", "@__cudnn$fmhaSoftmax("), ("rocm", "@te_fused_attn_forward_ffi("), ("tpu", "@tpu_custom_call(")],
)
def test_fused_attention_is_the_call_of_its_backend(platform: str, call: str) -> None:
    settings = {"batch": "1", "seq": "32"}
    program = plan_target("llama3-tiny", Plan.parse("attention=flash"), settings=settings, platform=platform)
    assert isinstance(program, Program)
    assert call in program.text


def test_no_fused_attention_where_there_is_no_kernel() -> None:
    with pytest.raises(UnsupportedError, match="lowered for cpu"):
        plan_target("llama3-tiny", Plan.parse("attention=flash"), platform="cpu")


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_what_a_library_has_no_kernel_for_is_refused(platform: str) -> None:
    settings = {"batch": "1", "seq": "32"}
    for said, more, plan in (
        ("not half precision", {}, "attention=flash,precision=fp32"),
        ("capped at 5", {"attention_cap": "5.0"}, "attention=flash"),
    ):
        with pytest.raises(UnsupportedError, match=said):
            plan_target("llama3-tiny", Plan.parse(plan), settings={**settings, **more}, platform=platform)


def test_a_ring_has_no_window_and_a_split_has_two_chunks() -> None:
    settings = {"batch": "1", "seq": "36", "window": "8"}
    with pytest.raises(UnsupportedError, match="flash-all-gather"):
        plan_target("llama3-tiny", Plan.parse("attention=flash-ring,cp=2"), settings=settings)
    with pytest.raises(InfeasibleError, match="36 is not divisible by 2 x cp=4"):
        plan_target("llama3-tiny", Plan.parse("attention=flash,cp=4"), settings=settings)


def test_a_program_has_its_shardings() -> None:
    with pytest.raises(UsageError, match="not for a program"):
        plan_target(lambda: None, Plan())


def test_a_plan_makes_the_mesh() -> None:
    with pytest.raises(UsageError, match="makes the mesh itself"):
        predict("llama3-tiny", Options(on="dgx-h100", mesh={"data": 2}, plan="dp=2"))


def test_without_stages_it_is_one_program() -> None:
    program = plan_target("llama3-tiny", Plan.parse("dp=2,tp=4"), settings={"batch": "8", "seq": "32"})
    assert isinstance(program, Program)
    assert program.mesh.sizes == {"data": 2, "tensor": 4}
    again = plan_target("llama3-tiny", Plan.parse("dp=2,tp=4"), settings={"batch": "8", "seq": "32"})
    assert again is program


def test_a_huggingface_configuration(tmp_path: Path) -> None:
    values = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 128,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    program = plan_target(tmp_path, Plan.parse("fsdp=4"), settings={"seq": "32"})
    assert isinstance(program, Program)
    assert program.devices == 4


def test_equal_parts_are_one() -> None:
    settings = {"batch": "16", "seq": "32", "layers": "8"}
    pipeline = plan_target("gpt2-tiny", Plan.parse("dp=2,tp=2,pp=4,vp=2,remat=full"), settings=settings)
    assert isinstance(pipeline, Pipeline)
    assert [(part.name, part.count) for part in pipeline.parts] == [("first", 1), ("middle", 6), ("last", 1)]
    assert (pipeline.microbatches, pipeline.schedule, pipeline.devices) == (8, "interleaved", 16)
    assert pipeline.reduction is not None
    assert pipeline.reduction.over == ("data",)


def test_interleaved_stages_take_fewer_microbatches_than_there_are_of_them() -> None:
    """Two microbatches go through four stages as one group, and those of six as one of six."""
    for microbatches in (2, 6):
        plan = Plan.parse(f"pp=4,vp=2,layers-per-stage=0+1x6+0,microbatches={microbatches}")
        pipeline = plan_target("llama3-tiny", plan, settings={"seq": "32", "layers": "6"})
        assert isinstance(pipeline, Pipeline)
        assert pipeline.microbatches == microbatches


def test_uneven_parts() -> None:
    plan = Plan.parse("pp=4,layers-per-stage=0+1x2+0,microbatches=4")
    pipeline = plan_target("llama3-tiny", plan, settings={"seq": "32"})
    assert isinstance(pipeline, Pipeline)
    assert [(part.name, part.count) for part in pipeline.parts] == [("first", 1), ("middle", 2), ("last", 1)]


def test_fp8_needs_a_device_that_has_it() -> None:
    settings = {"batch": "2", "seq": "32"}
    with pytest.raises(UnsupportedError, match="a100-sxm-80gb multiplies matrices of bf16"):
        predict("llama3-tiny", Options(on="a100-sxm-80gb", plan="precision=fp8", settings=settings))
    run = prepare("llama3-tiny", Options(on="h100-sxm", plan="precision=fp8", settings=settings))
    assert any(dtype.startswith("f8") for dtype in run.workload.totals.matrix_flops)


LARGEST = (2, 4)  # bytes of the largest value of a tensor, in the type that it is passed on in


def test_mxfp8_needs_a_device_that_has_blocks_and_looks_for_no_largest_value() -> None:
    settings = {"batch": "4", "seq": "32"}
    with pytest.raises(UnsupportedError, match="precision=mxfp8, and h100-sxm multiplies"):
        predict("llama3-tiny", Options(on="h100-sxm", plan="precision=mxfp8", settings=settings))
    tensor, blocks = (
        prepare("llama3-tiny", Options(on="dgx-b200", plan=f"fsdp=4,precision={name}", settings=settings))
        for name in ("fp8", "mxfp8")
    )
    assert tensor.workload.totals.matrix_flops["f8E5M2"] > 0
    assert "f8E5M2" not in blocks.workload.totals.matrix_flops
    totals = [sum(run.workload.totals.matrix_flops.values()) for run in (tensor, blocks)]
    assert totals[0] == totals[1]
    numbers = [
        sum(n for k, n in run.lowered.schedule.walk() if k.collective and k.collective.payload_bytes in LARGEST)
        for run in (tensor, blocks)
    ]
    assert numbers[1] < numbers[0]


@pytest.mark.parametrize(
    ("precision", "dtype", "on", "without"),
    [
        ("nvfp4", "f4E2M1FN", "b200", "h100-sxm"),
        ("int8", "i8", "tpu-v6e", "tpu-v3"),
        ("fp16", "f16", "v100-sxm2-32gb", ""),
    ],
)
def test_products_are_in_the_type_asked_for(precision: str, dtype: str, on: str, without: str) -> None:
    options = Options(on=on, plan=f"precision={precision}", settings={"batch": "2", "seq": "32"})
    assert prepare("llama3-tiny", options).workload.totals.matrix_flops[dtype] > 0
    if without:
        with pytest.raises(UnsupportedError, match=f"precision={precision}, and {without} multiplies"):
            prepare("llama3-tiny", options.having(on=without))


def test_state_is_shared_out_over_all_ranks_whatever_the_number_of_layers() -> None:
    """Three layers: `dp` does not divide them, and goes with `cp` over the width."""
    layout = MeshLayout.of({"data": 2, "context": 2, "tensor": 2}, axes=("data", "context", "tensor"))
    for layers in (2, 3):
        weight = layout.struct((layers, 16, 8), "float32", None, None, "tensor")
        spread = layout.spread_over_replicas(weight)
        assert spread.sharding is not None
        assert spread.sharding.shard_shape(spread.shape) in ((1, 8, 4), (3, 4, 4))


def test_state_that_replicas_divide_no_dimension_of_is_a_flat_buffer_of_shares() -> None:
    """A device of two has 3 x 16 x 4 = 192 numbers, seven replicas of it 28 each; of a norm 3 x 16 / 7, filled up, are 7."""
    layout = MeshLayout.of({"data": 7, "tensor": 2}, axes=("data", "tensor"))
    for shape, axes, buffer, share in (
        ((3, 16, 8), (None, None, "tensor"), (2, 196), (1, 28)),
        ((3, 16), (), (1, 49), (1, 7)),
    ):
        spread = layout.spread_over_replicas(layout.struct(shape, "float32", *axes))
        assert spread.sharding is not None
        assert (spread.shape, spread.sharding.shard_shape(spread.shape)) == (buffer, share)


def moved(program: Program, *, axis: str) -> dict[str, tuple[int, int]]:
    """By kind of collective over all devices of an axis, and those alone, how many a step has and their bytes."""
    found: dict[str, tuple[int, int]] = {}
    for op, count in read_workload(partition(program)).walk():
        collective = op.cost.geometry
        if isinstance(collective, Collective):
            assert collective.group.axes == (axis,)
            times, size = found.get(collective.kind, (0, 0))
            found[collective.kind] = (times + count, size + count * collective.payload_bytes)
    return found


def test_weights_are_stored_over_any_number_of_devices() -> None:
    """A width of 64 is 22 rows on each of three devices; programs of two, which divide it, have the same exchanges."""
    said = {}
    for devices in (2, 3):
        settings = {"batch": str(devices), "seq": "32"}
        program = plan_target("llama3-tiny", Plan.parse(f"fsdp={devices},mbs=1,remat=full"), settings=settings)
        assert isinstance(program, Program)
        workload = read_workload(partition(program))
        held = sum(
            workload.tensors[value].bytes
            for argument, value in zip(workload.arguments, workload.body.inputs, strict=True)
            if argument.role in ("parameter", "optimizer_state")
        )
        whole = 12 * model_of("llama3-tiny").parameters()
        assert whole / devices <= held <= whole * -(-64 // devices) / 64 * 1.01  # norms have a row for each layer
        said[devices] = moved(program, axis="fsdp")
    even, uneven = said[2], said[3]
    for kind in ("all_gather", "reduce_scatter"):
        assert uneven[kind][0] == even[kind][0]
        assert uneven[kind][1] == pytest.approx(even[kind][1], rel=66 / 64 - 1)


def test_a_compiler_is_not_asked_for_shares_that_are_not_of_one_size() -> None:
    settings = {"batch": "3", "seq": "32"}
    program = plan_target("llama3-tiny", Plan.parse("fsdp=3,mbs=1,remat=full"), settings=settings)
    assert isinstance(program, Program)
    with pytest.raises(UsageError, match="not all of one size"):
        lower_compiled(program, load_device("h100-sxm"))


@pytest.mark.parametrize("zero", [1, 2])
def test_zero_shares_out_over_any_number_of_replicas(zero: int) -> None:
    """Three replicas: widths of 64 are filled up to 66, vocabularies of 257 to 258, and no device has more than the third."""
    settings = {"batch": "6", "seq": "32"}
    program = plan_target("gpt2-tiny", Plan.parse(f"dp=3,zero={zero},mbs=1"), settings=settings)
    assert isinstance(program, Program)
    workload = read_workload(partition(program))
    held: dict[str, int] = {}
    for argument, value in zip(workload.arguments, workload.body.inputs, strict=True):
        held[argument.role] = held.get(argument.role, 0) + workload.tensors[value].bytes
    # Weights of 2 bytes whole; of their copy and two moments 12 bytes in three shares, 66 of 64 numbers at the most.
    assert 12 / 3 <= held["optimizer_state"] / (held["parameter"] / 2) <= 12 / 3 * 66 / 64
    exchanged, parameters = moved(program, axis="data"), held["parameter"] / 2
    # Gradients of fp32 are reduced once a step or once a microbatch, and parameters of bf16 gathered once.
    times = 1 if zero == 1 else 2
    assert 4 * parameters * times <= exchanged["reduce_scatter"][1] <= 4 * parameters * times * 66 / 64
    assert exchanged["all_gather"][1] == pytest.approx(2 * parameters, rel=66 / 64 - 1)


def test_what_does_not_fit_is_infeasible() -> None:
    prediction = predict("llama3-70b", Options(on="dgx-h100", plan="dp=8,remat=full"))
    assert not prediction.feasible


@pytest.mark.parametrize(
    ("model", "plan", "on", "expected"),
    [
        ("llama3-tiny", "tp=2", "h100-sxm", "flash"),
        ("llama3-tiny", "tp=2", "mi300x", "flash"),
        ("llama3-tiny", "tp=2,attention=auto", "h100-sxm", "flash"),
        ("llama3-tiny", "cp=2", "tpu-v5e", "flash-ring"),
        ("llama3-tiny", "attention=plain", "h100-sxm", "plain"),
        ("llama3-tiny", "dp=2", "cpu-generic", "plain"),
        ("llama3-tiny", "dp=2", "v100-sxm2-32gb", "plain"),
        ("llama3-tiny", "precision=fp32", "h100-sxm", "plain"),
        ("gemma-2b", "dp=2", "a100", "plain"),
        ("gemma-2b", "dp=2", "h100-sxm", "flash"),
        ("deepseek-v2-lite", "dp=2", "a100", "plain"),
        ("deepseek-v2-lite", "dp=2", "h100-sxm", "flash"),
        ("gemma2-tiny", "dp=2", "h100-sxm", "plain"),
        ("gemma2-tiny", "dp=2", "tpu-v5e", "flash"),
        ("resnet-tiny", "dp=2", "h100-sxm", None),
    ],
)
@pytest.mark.parametrize("asked", ["auto", "flash"])
def test_a_model_attends_as_its_device_can_where_nobody_says(
    model: str, plan: str, on: str, expected: str | None, asked: str
) -> None:
    """Not on GPUs before Ampere, with capped scores, in fp32, with heads of 256 or two widths before Hopper."""
    options = Options(plan=plan, attention=asked, context_attention="ring")
    found = asked_of(model_of(model), options, load_device(on)).plan
    assert found is not None
    assert found.attention == expected


def test_what_is_said_of_attention_and_why() -> None:
    device, builder = load_device("a100"), model_of("gemma-2b")
    found = attention_of(builder, Options(), device)
    assert found is not None
    assert (found.attention, found.default) == ("plain", True)
    assert found.why == "heads of 256, and a100-sxm-80gb has it for multiples of 8 up to 128"
    by_hand = attention_of(
        builder, Options(attention_library="flash-2"), device
    )  # FlashAttention-2 has such heads there
    assert by_hand is not None
    assert by_hand.attention == "flash"
    told = attention_of(builder, Options(settings={"attention": "plain"}), load_device("h100-sxm"))
    assert told is not None
    assert (told.attention, told.default) == ("plain", False)
    assert attention_of(builder, Options(settings={"mode": "decode"}), device) is None


def test_a_default_is_never_refused() -> None:
    """Sequences that chunks do not divide, and the TPU's own compiler, have plain attention unless it is asked for."""
    tpu, builder = load_device("tpu-v5e"), model_of("llama3-tiny")
    assert attention_of(builder, Options(), tpu).attention == "flash"  # type: ignore[union-attr]
    assert attention_of(builder, Options(fidelity="compiled"), tpu).attention == "plain"  # type: ignore[union-attr]
    odd = Options(plan="cp=2", settings={"seq": "34"})
    assert attention_of(builder, odd, load_device("h100-sxm")).attention == "all-gather"  # type: ignore[union-attr]


def test_a_model_that_does_not_train_is_shared_out_by_its_own_mode() -> None:
    """Its lengths are those of the mode that it has: nobody asks a training step that there is not."""
    only = replace(model_of("llama3-tiny"), modes=("forward",), mode="forward")
    chosen = {"batch": "4", "seq": "32"}
    made = planned_model(only, Plan.parse("fsdp=2,tp=2"), settings=chosen, devices=None, platform="cuda")
    assert isinstance(made, Program)
    assert made.devices == 4
    with pytest.raises(UsageError, match="has no mode 'train'"):
        planned_model(only, Plan.parse("dp=2"), settings={"mode": "train"}, devices=None, platform="cuda")
