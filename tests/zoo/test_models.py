"""The zoo: published sizes, lowering without devices, and programs that learn."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast import predict
from meshcast.base.errors import InfeasibleError, UsageError
from meshcast.zoo import build, models, num_parameters, zoo
from meshcast.zoo.layers.pieces import attention, causal_attention
from tests.quick_compiling import QUICK
from tests.zoo.arrays import concrete

# Sums over the published weights: a checkpoint's index (decoders, T5, Mamba, BERT with its pooler), torchvision's tables
# (ViT, Swin, ConvNeXt, EfficientNetV2, ResNet to 152 layers), timm's (ResNet-200, ViT-S), the weights on Hugging Face (U-Nets,
# FLUX.1, Mamba-2). docs/models.md says which.
PUBLISHED = {
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "phi3-mini": 3_821_079_552,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "gemma3-1b": 999_885_952,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,
    "gpt2-small": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1.1-small": 76_961_152,
    "t5-v1.1-xl": 2_849_757_184,
    "t5-v1.1-xxl": 11_135_332_352,
    "mt5-small": 300_176_768,
    "mamba-130m": 129_135_360,
    "mamba-370m": 371_516_416,
    "mamba-790m": 793_204_224,
    "mamba-1.4b": 1_372_178_432,
    "mamba-2.8b": 2_768_345_600,
    "unet-sd15": 859_520_964,
    "unet-sd2": 865_910_724,
    "unet-sdxl": 2_567_463_684,
    "flux.1-schnell": 11_891_178_560,
    "flux.1-dev": 11_901_408_320,
    "mamba2-130m": 128_989_632,
    "mamba2-2.7b": 2_702_599_680,
    "convnext-tiny": 28_589_128,
    "convnext-base": 88_591_464,
    "swin-tiny": 28_288_354,
    "swin-base": 87_768_224,
    "efficientnetv2-s": 21_458_488,
    "vit-s16": 22_050_664,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "resnet200": 64_673_832,
    "resnext50-32x4d": 25_028_904,
    "resnext101-32x4d": 44_177_704,
    "resnext101-32x8d": 88_791_336,
    "resnext101-64x4d": 83_455_272,
    "se-resnext50-32x4d": 27_559_896,
    "se-resnext101-32x4d": 48_955_416,
    "wide-resnet50-2": 68_883_240,
    "wide-resnet101-2": 126_886_696,
    "efficientnet-b0": 5_288_548,
    "efficientnet-b1": 7_794_184,
    "efficientnet-b4": 19_341_616,
    "efficientnet-b7": 66_347_960,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "vit-h14": 632_045_800,
}
# Gemma 3's checkpoints hold a vision tower of 416,866,032 parameters and a projector, 1152 x width and a norm, as well.
WITH_VISION = {"gemma3-4b": (4_300_079_472, 2560), "gemma3-12b": (12_187_325_040, 3840)}
# Narayanan 2021, table 1, and Korthikanti 2022, table 3: billions, to the digits given.
BILLIONS = {
    "megatron-1.7b": 1.7, "megatron-3.6b": 3.6, "megatron-7.5b": 7.5, "megatron-18b": 18.4, "megatron-39b": 39.1,
    "megatron-76b": 76.1, "megatron-145b": 145.6, "megatron-310b": 310.1, "megatron-530b": 529.6, "megatron-1t": 1008.0,
}  # fmt: skip

# The roles of a program's arguments, by name, and which of them it gives up.
DONATED = {
    ("params", "opt_state", "batch"): (0, 1),
    ("params", "cache", "batch"): (1,),
    ("params", "batch"): (),
}

# One small program of each kind, but for those of tests/partition/models.py: the mesh of eight devices it is split over, and
# settings that keep it small.
SMALL: list[tuple[str, dict[str, int], dict[str, Any]]] = [
    ("llama3-tiny", {"data": 2, "fsdp": 2, "tensor": 2}, {"seq": 16, "remat": "autodiff", "sequence_parallel": True}),
    ("llama3-tiny", {"fsdp": 8}, {"seq": 16, "batch": 16, "remat": "selective", "accumulate": 2, "tied": True}),
    ("llama3-tiny-forward", {"data": 2, "tensor": 4}, {"seq": 16}),
    ("llama3-tiny-decode", {"data": 2, "tensor": 4}, {"context": 16}),
    ("llama3-tiny-decode", {"tensor": 8}, {"context": 16}),
    ("gpt2-tiny", {"data": 8}, {"seq": 16, "scan": False}),
    ("mixtral-tiny", {"fsdp": 2, "expert": 2, "tensor": 2}, {"seq": 64}),
    (
        "mixtral-tiny",
        {"data": 2, "expert": 2, "tensor": 2},
        {"seq": 64, "whole_experts": True, "sequence_parallel": True, "dispatch": "gather", "group": 32},
    ),
    ("mixtral-tiny-decode", {"expert": 8}, {"context": 16}),
    ("gemma2-tiny", {"fsdp": 2, "tensor": 2, "data": 2}, {"seq": 32}),
    ("gemma2-tiny-decode", {"data": 4, "tensor": 2}, {"context": 32}),
    ("deepseek-tiny", {"fsdp": 2, "expert": 2, "tensor": 2}, {"seq": 64}),
    ("deepseek-tiny-prefill", {"data": 2, "expert": 4}, {"seq": 64}),
    ("deepseek-tiny-decode", {"data": 2, "tensor": 4}, {"context": 16}),
    ("gpt2-tiny-decode", {"fsdp": 2, "tensor": 4}, {"context": 16}),
    ("bert-tiny", {"fsdp": 4, "tensor": 2}, {"seq": 16}),
    ("t5-tiny", {"fsdp": 4, "tensor": 2}, {"seq": 16, "target": 8, "accumulate": 2, "batch": 16}),
    ("mamba-tiny", {"fsdp": 4, "tensor": 2}, {"seq": 16}),
    ("mamba-tiny-decode", {"data": 4, "tensor": 2}, {}),
    ("mamba-tiny-prefill", {"data": 4, "tensor": 2}, {"seq": 16}),
    ("t5-tiny-prefill", {"data": 4, "tensor": 2}, {"seq": 16, "target": 8}),
    ("t5-tiny-decode", {"data": 4, "tensor": 2}, {"seq": 16, "target": 8}),
    ("lstm-tiny", {"data": 2, "fsdp": 4}, {"seq": 4}),
    ("dit-tiny", {"fsdp": 4, "tensor": 2}, {}),
    ("unet-tiny", {"data": 2, "fsdp": 4}, {"widths": (16,), "attended": "1"}),
    ("unet-tiny-forward", {"data": 8}, {}),
    ("unet-tiny", {"data": 8}, {"added": 8, "depths": (2, 1)}),
    ("mmdit-tiny", {"data": 2, "fsdp": 2, "tensor": 2}, {"accumulate": 2, "batch": 8}),
    ("mmdit-tiny-forward", {"fsdp": 4, "tensor": 2}, {"guided": True}),
    ("wan-tiny", {"fsdp": 2, "context": 2, "tensor": 2}, {"batch": 4}),
    ("wan-tiny", {"fsdp": 2, "context": 4}, {"batch": 4, "attention": "flash-all-gather"}),
    ("hybrid-tiny", {"fsdp": 4, "tensor": 2}, {"seq": 16, "sequence_parallel": True}),
    ("hybrid-tiny", {"data": 4, "tensor": 2}, {"seq": 16, "zero": 1, "param_dtype": "bfloat16", "products": "fp8"}),
    ("swin-two-stages", {"data": 8}, {"batch": 8}),
    ("convnext-two-stages", {"data": 2, "fsdp": 4}, {"batch": 8}),
    ("efficientnet-tiny", {"data": 8}, {"batch": 16, "second": True}),
    ("bert-tiny", {"data": 8}, {"seq": 16, "products": "fp8", "batch": 8}),
    ("resnet-tiny", {"data": 8}, {"batch": 32, "blocks": (1,), "accumulate": 2}),
    ("resnet-tiny-forward", {"data": 8}, {"batch": 16}),
    ("efficientnet-tiny", {"data": 8}, {"batch": 16, "accumulate": 2}),
    ("efficientnet-tiny-forward", {"data": 8}, {"batch": 8}),
    ("ssd-tiny", {"data": 8}, {"batch": 8}),
    ("ssd-tiny-forward", {"data": 8}, {"batch": 8}),
    ("mask-rcnn-tiny", {"data": 8}, {"batch": 8}),
    ("unet3d-tiny", {"data": 8}, {"batch": 16, "accumulate": 2}),
    ("transformer-tiny", {"data": 2, "fsdp": 2, "tensor": 2}, {"seq": 16, "batch": 8}),
    ("gnmt-tiny", {"data": 2, "fsdp": 4}, {"seq": 4, "batch": 8}),
    ("rnnt-tiny", {"data": 8}, {"seq": 8, "target": 3, "batch": 8}),
    ("vit-tiny", {"data": 8}, {"batch": 8}),
    ("dlrm-tiny", {"data": 8}, {"batch": 32, "placement": "row", "accumulate": 2}),
    ("mlp-tiny", {"data": 2, "tensor": 4}, {"batch": 16, "scheme": "scatter"}),
    ("mlp-tiny", {"data": 2, "tensor": 4}, {"batch": 16, "scheme": "ring"}),
]

LEARNING: list[tuple[str, dict[str, Any]]] = [
    ("llama3-tiny", {"seq": 16, "batch": 4, "layers": 1}),
    ("gpt2-tiny", {"seq": 16, "batch": 4, "layers": 1}),
    ("mixtral-tiny", {"seq": 16, "batch": 4, "layers": 1}),
    ("deepseek-tiny", {"seq": 16, "batch": 4, "layers": 1, "dense_layers": 0}),
    ("t5-tiny", {"seq": 16, "target": 8, "batch": 4, "layers": 1}),
    ("mamba-tiny", {"seq": 16, "batch": 4, "layers": 1}),
    ("lstm-tiny", {"seq": 8, "batch": 4}),
    ("resnet-tiny", {"batch": 8, "blocks": (1,)}),
    ("efficientnet-tiny", {"batch": 8}),
    ("transformer-tiny", {"seq": 8, "batch": 4}),
    ("gnmt-tiny", {"seq": 8, "batch": 4}),
    ("rnnt-tiny", {"seq": 8, "target": 3, "batch": 4}),
    ("unet3d-tiny", {"batch": 2}),
    ("mmdit-tiny", {"batch": 4}),
    ("wan-tiny", {"batch": 2}),
    ("hybrid-tiny", {"seq": 16, "batch": 4}),
    ("swin-two-stages", {"batch": 4}),
    ("convnext-two-stages", {"batch": 4}),
    ("dlrm-tiny", {"batch": 16}),
    ("mlp-tiny", {"batch": 16}),
]


def lowered(program: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> str:
    fn, args, options = program
    return jax.jit(fn, **options).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def test_listing_imports_no_jax() -> None:
    code = "import sys; from meshcast.zoo import zoo; assert len(zoo()) > 30; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("name", zoo())
def test_every_program_builds_on_one_device(name: str) -> None:
    fn, args, options = build(name)
    roles = tuple(inspect.signature(fn).parameters)
    assert len(args) == len(roles)
    assert options["donate_argnums"] == DONATED[roles]


def test_parameters_are_the_published_ones() -> None:
    found = models()
    assert {name: found[name].parameters() for name in PUBLISHED} == PUBLISHED
    for name, (whole, width) in WITH_VISION.items():
        assert found[name].parameters() == whole - 416_866_032 - 1152 * (width + 1)
    for name, billions in BILLIONS.items():
        assert round(found[name].parameters() / 1e9, 1) == billions
    # DiT's checkpoint counts its fixed positions, 256 patches of 1152 numbers, which are not learned here or there.
    assert found["dit-xl2"].parameters() + 256 * 1152 == 675_129_632
    assert round(found["lstm-large"].parameters() / 1e6) == 66
    # MLPerf's papers and references: millions, to the digits given. torchvision's Mask R-CNN has ten classes more: each is 1,024
    # numbers and a bias for the class and for each of its box's four, and 256 and one for its mask; norms of its trunk are fixed.
    assert round(found["transformer-big"].parameters() / 1e6) == 211
    assert round(found["gnmt"].parameters() / 1e6) == 161
    assert round(found["rnnt"].parameters() / 1e6) == 49
    assert round(found["unet3d"].parameters() / 1e6) == 31
    assert round(found["retinanet"].parameters() / 1e6) == 37
    assert found["mask-rcnn"].parameters() == pytest.approx(44_401_393 - 10 * (5 * 1025 + 257) + 53_120, rel=1e-3)


@pytest.mark.parametrize("name", ["llama3-8b", "gemma2-2b", "deepseek-v3", "gpt2-small", "t5-base", "mamba-130m"])
def test_programs_have_the_parameters_that_are_counted(name: str) -> None:
    counts = {num_parameters(build(each)[1][0]) for each in (name, f"{name}-forward")}
    assert counts == {PUBLISHED[name]}


def test_bert_is_trained_with_its_head_and_encodes_with_its_pooler() -> None:
    assert num_parameters(build("bert-base-forward")[1][0]) == 109_482_240
    assert num_parameters(build("bert-base")[1][0]) == 109_514_298


@pytest.mark.parametrize(("name", "mesh", "settings"), SMALL)
def test_lowers_without_devices(name: str, mesh: dict[str, int], settings: dict[str, Any]) -> None:
    text = lowered(build(name, mesh, **settings))
    assert "mhlo.num_partitions = 8" in text
    assert all(f'"{axis}"={size}' in text for axis, size in mesh.items())


@pytest.mark.parametrize(
    "name", ["llama3-tiny-decode", "gpt2-tiny-forward", "dlrm-tiny", "mlp-tiny", "unet-tiny-forward"]
)
def test_one_device_needs_no_shardings(name: str) -> None:
    assert "sdy.sharding" not in lowered(build(name))


def test_largest_model_lowers_over_a_pod() -> None:
    text = lowered(build("llama3-405b", {"data": 16, "fsdp": 128, "tensor": 8}, batch=2048, seq=8192))
    assert "mhlo.num_partitions = 16384" in text


@pytest.mark.parametrize(("name", "settings"), LEARNING)
def test_loss_falls(name: str, settings: dict[str, Any]) -> None:
    fn, args, options = build(name, **settings)
    params, opt_state, batch = concrete(args, ["params", "opt_state", "batch"])
    step = jax.jit(fn, compiler_options=QUICK, **options)
    losses = []
    for _ in range(8):
        params, opt_state, loss = step(params, opt_state, batch)
        losses.append(float(loss))
    assert np.all(np.isfinite(losses))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["bert-tiny-forward", "dit-tiny-forward", "resnet-tiny-forward"])
def test_forward_passes_are_finite(name: str) -> None:
    fn, args, _ = build(name, batch=2)
    outputs = jax.jit(fn, compiler_options=QUICK)(*concrete(args, ["params", "batch"]))
    assert all(np.isfinite(np.asarray(leaf, np.float32)).all() for leaf in jax.tree.leaves(outputs))


def test_microbatches_sum_to_the_batch() -> None:
    settings: dict[str, Any] = {"seq": 16, "batch": 4, "compute_dtype": "float32", "layers": 1}
    fn, args, _ = build("gpt2-tiny", **settings)
    params, opt_state, batch = concrete(args, ["params", "opt_state", "batch"])
    split, _, _ = build("gpt2-tiny", **settings, accumulate=2)
    whole = jax.jit(fn, compiler_options=QUICK)(params, opt_state, batch)
    parts = jax.jit(split, compiler_options=QUICK)(
        params, opt_state, jax.tree.map(lambda x: x.reshape(2, 2, 16), batch)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole[1]["m"], parts[1]["m"])
    assert float(whole[2]) == pytest.approx(float(parts[2]), rel=1e-5)


def test_microbatches_of_tables_sum_to_the_batch() -> None:
    fn, args, _ = build("dlrm-tiny", batch=16)
    params, opt_state, batch = concrete(args, ["params", "opt_state", "batch"])
    split, _, _ = build("dlrm-tiny", batch=16, accumulate=4)
    parts = jax.tree.map(lambda x: x.reshape(4, 4, *x.shape[1:]), batch)
    whole = jax.jit(fn, compiler_options=QUICK)(params, opt_state, batch)
    summed = jax.jit(split, compiler_options=QUICK)(params, opt_state, parts)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), whole, summed)


def test_tables_that_devices_do_not_divide_are_spread_unevenly() -> None:
    """Nine tables on four devices: the fullest has three, and the step is its own; rows are padded likewise."""
    _, (params, _, data), _ = build("dlrm-tiny", {"data": 4}, batch=16, tables=9)
    assert params["tables"].shape == (12, 512, 16)
    assert data["indices"].shape == (16, 9, 4)  # samples name rows of the tables that there are
    _, (params, _, _), _ = build("dlrm-tiny", {"data": 4}, batch=16, rows=510, placement="row")
    assert params["tables"].shape == (8, 512, 16)
    _, (params, _, _), _ = build("dlrm-tiny", {"data": 4}, batch=16)
    assert params["tables"].shape == (8, 512, 16)
    model = zoo()["dlrm-tiny"]
    (said,) = model.remarks({"data": 4}, tables=9)
    assert said == "9 tables on 4 devices: the fullest has 3, and the step and its memory are its own"
    assert "8 devices have none" in model.remarks({"data": 16})[0]
    assert "padded to 512, 128 on each" in model.remarks({"data": 4}, rows=510, placement="row")[0]
    assert model.remarks({"data": 4}) == model.remarks() == ()
    assert model.parameters() == 8 * 512 * 16 + sum(  # dense layers; nothing is added to what is published
        a * b + b for a, b in ((13, 32), (32, 16), (16 + 36, 32), (32, 1))
    )


def test_the_fullest_device_bounds_the_step() -> None:
    uneven, even = (
        predict("dlrm-tiny", on="dgx-h100", mesh={"data": 4}, settings={"tables": tables, "batch": "64"}, levers=False)
        for tables in ("9", "12")
    )
    assert any("the fullest has 3" in each for each in uneven.warnings)
    assert not any("fullest" in each for each in even.warnings)
    table = 512 * 16 * 4
    dense = 4 * sum(a * b + b for a, b in ((13, 32), (32, 16), (16 + 45, 32), (32, 1)))
    assert uneven.memory.by_role["parameter"] == 3 * table + dense
    assert uneven.communication_bytes <= even.communication_bytes  # all-to-alls are as large, dense gradients smaller


def test_microbatches_have_statistics_of_their_own() -> None:
    """Momentum, statistics and loss are the means of what steps on each microbatch alone give."""
    settings: dict[str, Any] = {"blocks": (1,), "compute_dtype": "fp32"}
    fn, args, _ = build("resnet-tiny", batch=8, accumulate=2, **settings)
    params, opt_state, batch = concrete(args, ["params", "opt_state", "batch"])
    _, state, loss = jax.jit(fn, compiler_options=QUICK)(params, opt_state, batch)
    one = jax.jit(build("resnet-tiny", batch=4, **settings)[0], compiler_options=QUICK)
    alone = [one(params, opt_state, jax.tree.map(lambda x, i=i: x[i], batch))[1:] for i in (0, 1)]
    means = jax.tree.map(lambda a, b: (a + b) / 2, *alone)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), (state, loss), means)


def test_weights_and_their_moments_are_sharded_alike() -> None:
    _, (params, opt_state, batch), _ = build("llama3-8b", {"fsdp": 4, "tensor": 2})
    assert params["layers"]["wq"].sharding.shard_shape((32, 4096, 4096)) == (32, 1024, 2048)
    assert opt_state["m"]["layers"]["wq"].sharding == params["layers"]["wq"].sharding
    assert batch["tokens"].sharding.shard_shape((8, 2048)) == (2, 2048)


def test_gpt_pads_the_vocabulary_only_to_split_it() -> None:
    assert build("gpt2-small")[1][0]["tokens"].shape[0] == 50257
    assert build("gpt2-small", {"tensor": 4})[1][0]["tokens"].shape[0] == 50688


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'llama3-8b'"):
        build("llama3-8")
    with pytest.raises(UsageError, match=r"(?s)'sequence'.*settings are .*seq.*layers"):
        build("llama3-8b", sequence=1)
    with pytest.raises(UsageError, match="'context' in mode train, it is one of mode prefill, decode; here it is seq"):
        build("llama3-8b", context=1)
    with pytest.raises(UsageError, match=r"'seq' in mode decode, .*; here it is context"):
        build("llama3-8b-decode", seq=1)
    with pytest.raises(UsageError, match="bert-base has no mode 'decode'; its modes are train, forward"):
        build("bert-base-decode")
    with pytest.raises(UsageError, match="no mode 'decode'"):
        build("resnet50", mode="decode")
    with pytest.raises(UsageError, match="data, fsdp, context, tensor"):
        build("gpt2-small", {"pipeline": 2})
    with pytest.raises(
        UsageError, match="autodiff, none, attention, projections, heads, products, selective, alternate, full"
    ):
        lowered(build("llama3-tiny", seq=16, remat="some"))
    with pytest.raises(UsageError, match="remat=none keeps what layers mark"):
        lowered(build("bert-tiny", remat="none"))
    with pytest.raises(InfeasibleError, match="attention heads: 12 is not divisible by tensor=8"):
        build("gpt2-small", {"tensor": 8})
    with pytest.raises(InfeasibleError, match="8 is not divisible by data=3"):
        build("resnet50", {"data": 3}, batch=8)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("llama3-8b", {"kv_heads": 5}, "heads=32 is not divisible by kv_heads=5"),
        ("llama3-8b", {"head_dim": 127}, "head_dim=127 is odd"),
        ("llama3-8b", {"layers": 0}, "layers is a positive integer, not 0"),
        ("llama3-8b", {"window": -1}, "window is a positive integer or zero"),
        ("llama3-8b", {"tied": 1}, "tied is true or false"),
        ("llama3-8b", {"rope_theta": "high"}, "rope_theta is a finite number of zero or more"),
        ("llama3-8b", {"rope_theta": float("nan")}, "rope_theta is a finite number of zero or more"),
        ("llama3-8b", {"seq": 99999999999999999999}, "is above 2147483647, the largest size"),
        ("llama3-8b", {"compute_dtype": "int7"}, "compute_dtype=int7 is no type of numbers here"),
        ("llama3-8b", {"compute_dtype": "fp8"}, "values of eight bits need scales"),
        ("llama3-8b", {"norm": "batch"}, "norm='batch' is not one of rms"),
        ("llama3-8b", {"parallel_norms": 3}, "parallel_norms=3 is not 0, 1 or 2"),
        ("llama3-8b", {"alibi": True, "window": 8}, "alibi has no window=8"),
        ("mixtral-8x7b", {"capacity_factor": 0}, "capacity_factor=0 leaves experts no room"),
        ("llama3-8b", {"activation": "tanh"}, "activation='tanh' is not one of silu, gelu"),
        ("llama3-8b", {"dense_layers": 2}, "dense_layers=2 needs experts"),
        ("llama3-8b", {"global_every": 2}, "global_every needs a window"),
        ("llama3-8b", {"latent_rank": 64}, "latent attention needs rope_dim and value_dim"),
        ("mixtral-8x7b", {"active": 9}, "active=9 of experts=8"),
        ("deepseek-v3", {"dense_layers": 61}, "dense_layers=61 leaves none of layers=61"),
        ("deepseek-v3", {"window": 8}, "latent attention has neither windows"),
        ("gpt2-small", {"heads": 7}, "dim=768 is not divisible by heads=7"),
        ("gpt2-small", {"seq": "long"}, "seq is a positive integer, not 'long'"),
        ("vit-b16", {"patch": 15}, "image=224 is not divisible by patch=15"),
        ("resnet50", {"blocks": "deep"}, "blocks is a list of positive integers"),
        ("unet-sd15", {"attended": "11"}, "not one digit, 0 or 1, for each of 4 resolutions"),
        ("unet-sd15", {"image": 60}, "image=60 cannot be halved 3 times"),
        ("dlrm-tiny", {"dim": 8}, "end in another width than the tables' dim=8"),
        ("t5-base", {"buckets": 6}, "no multiple of four"),
        ("bert-base", {"seq": 1024}, "seq=1024 is longer than the model's 512 positions"),
        ("mamba-130m", {"seq": 1000}, "seq=1000 is no multiple of chunk=256"),
    ],
)
def test_sizes_that_cannot_be(name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        build(name, **settings)
    assert said in refused.value.message


def test_types_have_short_names() -> None:
    for short, full in (("bf16", "bfloat16"), ("fp32", "float32"), ("f16", "float16"), ("fp8", "float8_e4m3fn")):
        params = build("llama3-tiny-forward", param_dtype=short)[1][0]
        assert params["embedding"].dtype.name == full


def test_a_setting_of_zero_leaves_a_part_out() -> None:
    dense = build("mixtral-8x7b", experts=0)
    assert "router" not in dense[1][0]["layers"]
    plain = build("deepseek-v3", query_rank=0)
    assert "wq" in plain[1][0]["layers"]


def test_a_mode_is_a_setting_too() -> None:
    assert build("llama3-tiny", mode="decode", context=16)[0].__name__ == "decode_step"
    assert build("llama3-tiny-decode", mode="train", seq=16)[0].__name__ == "train_step"


@pytest.mark.parametrize(("length", "window"), [(12, 4), (16, 4), (8, 4), (10, 4), (3, 4)])
def test_local_attention_is_masked_attention(length: int, window: int) -> None:
    rng = np.random.default_rng(length)
    q, k, v = (jnp.asarray(rng.normal(size=(1, length, heads, 4)), jnp.float32) for heads in (2, 1, 1))
    mask = jnp.asarray(np.tril(np.ones((length, length), bool)) & ~np.tril(np.ones((length, length), bool), -window))
    both = jax.jit(
        lambda q, k, v: (causal_attention(q, k, v, window=window, cap=5.0), attention(q, k, v, mask, cap=5.0)),
        compiler_options=QUICK,
    )
    local, masked = both(q, k, v)
    np.testing.assert_allclose(local, masked, atol=1e-5)


def test_both_dispatches_are_the_same_function() -> None:
    """Even where tokens are dropped: the same ones are."""
    settings: dict[str, Any] = {"batch": 2, "seq": 32, "layers": 1, "capacity_factor": 0.5, "param_dtype": "float32"}
    outputs = []
    for dispatch in ("einsum", "gather"):
        fn, args, _ = build("mixtral-tiny-forward", dispatch=dispatch, **settings)
        outputs.append(jax.jit(fn, compiler_options=QUICK)(*concrete(args, ["params", "batch"])))
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-4)


def test_scores_in_bf16_are_divided_by_behind_the_product() -> None:
    """As MaxText attends: the same function but for what bf16 rounds, its gradient too."""
    q, k, v = (jax.random.normal(key, (2, 16, 4, 8)) for key in jax.random.split(jax.random.key(0), 3))

    def summed(q: jax.Array, scores: Any) -> jax.Array:
        return jnp.sum(causal_attention(q, k, v, scores=scores) ** 2)

    for function in (summed, jax.grad(summed)):
        wide, narrow = function(q, jnp.float32), function(q, jnp.bfloat16)
        assert np.max(np.abs(wide - narrow)) < 0.05 * np.max(np.abs(wide))


def test_what_tables_make_may_be_filled_up_to_whole_loads() -> None:
    plain, filled = (
        jax.eval_shape(build("dlrm-tiny", align=align)[0], *build("dlrm-tiny", align=align)[1]) for align in (1, 8)
    )
    width = plain[0]["dense"]["top"][0]["kernel"].shape[0]
    assert filled[0]["dense"]["top"][0]["kernel"].shape[0] == -(-width // 8) * 8


def test_kinds_of_tokens_by_a_product_are_those_looked_up() -> None:
    """BERT's step on the same numbers: the same loss, and no scatter into the table of two kinds."""
    looked, picked = (build("bert-tiny", batch=2, seq=16, remat="autodiff", one_hot_types=way) for way in (False, True))
    rng = np.random.default_rng(0)

    def filled(leaf: Any) -> np.ndarray:  # by NumPy: JAX would compile a program for every shape
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return rng.integers(0, 2, leaf.shape).astype(leaf.dtype)
        return rng.uniform(0.01, 0.1, leaf.shape).astype(leaf.dtype)

    arguments = jax.tree.map(filled, looked[1])
    losses = [float(jax.jit(fn, compiler_options=QUICK)(*arguments)[2]) for fn, _, _ in (looked, picked)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    scatters = [jax.jit(fn).lower(*args).as_text().count('"stablehlo.scatter"') for fn, args, _ in (looked, picked)]
    assert scatters[0] == scatters[1] + 1
