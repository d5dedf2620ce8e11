"""A prompt and single steps over a cache say what the forward pass says."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshcast.base.errors import UnsupportedError, UsageError
from meshcast.zoo import build
from meshcast.zoo.layers.grouped_query import slopes
from meshcast.zoo.layers.pieces import attention
from tests.quick_compiling import QUICK
from tests.zoo.arrays import concrete

WIDE: dict[str, Any] = {"param_dtype": "float32"}
# Experts with room for every token: what is dropped depends on who else is in the group.
ROOM = {"capacity_factor": 8.0}
BIASED = {"qkv_bias": True, "out_bias": True, "ffn_bias": True, "gated": False, "layers": 1}


@pytest.mark.parametrize(
    ("name", "settings", "prompt", "length"),
    [
        ("llama3-tiny", {"scan": False}, 3, 6),
        ("llama3-tiny", {"qkv_bias": True, "qk_norm": True, "tied": True}, 3, 6),
        # Two windows of eight and more: blocks in the prompt, and a cache that is written round.
        ("gemma2-tiny", {}, 24, 27),
        ("gemma2-tiny", {"layers": 3}, 10, 12),
        ("mixtral-tiny", {**ROOM, "layers": 1}, 4, 6),
        ("mixtral-tiny", {**ROOM, "layers": 1, "dispatch": "gather"}, 4, 6),
        ("deepseek-tiny", ROOM, 4, 6),
        (
            "deepseek-tiny",
            {**ROOM, "query_rank": 0, "dispatch": "einsum", "shared_gate": True, "layers": 1, "dense_layers": 0},
            4,
            6,
        ),
        ("gpt2-tiny", {"scan": False}, 4, 6),
        ("gpt2-tiny", {"post_norm": True, "embedding_dim": 32}, 4, 6),
        # GPT-NeoX, BLOOM, OLMo 2, Command R, gpt-oss.
        (
            "llama3-tiny",
            {**BIASED, "norm": "layer", "parallel_norms": 2, "rotated": 4, "activation": "exact_gelu"},
            3,
            6,
        ),
        ("llama3-tiny", {**BIASED, "norm": "layer", "alibi": True, "embedding_norm": True, "kv_heads": 8}, 3, 6),
        ("llama3-tiny", {"pre_norms": False, "post_norms": True, "wide_qk_norm": True, "layers": 1}, 3, 6),
        ("llama3-tiny", {"norm": "scaled", "parallel_norms": 1, "tied": True, "layers": 1}, 3, 6),
        (
            "mixtral-tiny",
            {
                **ROOM,
                "expert_bias": True,
                "sinks": True,
                "out_bias": True,
                "window": 4,
                "global_every": 2,
                "activation": "clipped_swiglu",
                "dispatch": "gather",
            },
            12,
            14,
        ),
    ],
)
@pytest.mark.parametrize("batch", [2])
def test_prefill_and_decoding_agree_with_forward(
    name: str, settings: dict[str, Any], prompt: int, length: int, batch: int
) -> None:
    settings = {"scan": True, **settings}  # of all three programs, so that they have the same parameters
    forward, args, _ = build(f"{name}-forward", batch=batch, seq=length, **WIDE, **settings)
    params, data = concrete(args, ["params", "batch"])
    expected = jnp.argmax(jax.jit(forward, compiler_options=QUICK)(params, data), axis=-1)
    prefill, args, options = build(f"{name}-prefill", batch=batch, seq=prompt, context=length, **WIDE, **settings)
    _, cache, _ = concrete(args, ["params", "cache", "batch"])
    start = jax.jit(prefill, compiler_options=QUICK, **options)
    cache, following = start(params, cache, {"tokens": data["tokens"][:, :prompt]})
    np.testing.assert_array_equal(following, expected[:, prompt - 1])
    decode, _, options = build(f"{name}-decode", batch=batch, context=length, **WIDE, **settings)
    step = jax.jit(decode, compiler_options=QUICK, **options)
    for position in range(prompt, length):
        inputs = {"tokens": data["tokens"][:, position], "position": jnp.int32(position)}
        cache, following = step(params, cache, inputs)
        np.testing.assert_array_equal(following, expected[:, position])


def test_many_tokens_of_one_step_share_the_experts() -> None:
    """Eight tokens go to experts by capacity; a single one reads the weights of its own experts."""
    settings: dict[str, Any] = {**ROOM, **WIDE, "context": 2}
    decode, args, _ = build("mixtral-tiny-decode", batch=8, **settings)
    params, cache, data = concrete(args, ["params", "cache", "batch"])
    data["position"] = jnp.int32(0)
    _, together = jax.jit(decode, compiler_options=QUICK)(params, cache, data)
    decode, args, _ = build("mixtral-tiny-decode", batch=1, **settings)
    _, cache, _ = concrete(args, ["params", "cache", "batch"])
    few = {"tokens": data["tokens"][:1], "position": data["position"]}
    _, alone = jax.jit(decode, compiler_options=QUICK)(params, cache, few)
    np.testing.assert_array_equal(together[:1], alone)


# Shorter than the convolution's window of four, and longer.
@pytest.mark.parametrize(("prompt", "layers", "scan"), [(2, 1, True), (6, 1, True), (6, 2, False)])
def test_a_state_space_model_decodes_as_it_scans(prompt: int, layers: int, scan: bool) -> None:
    forward, args, _ = build("mamba-tiny-forward", batch=2, seq=9, chunk=3, layers=layers, scan=scan, **WIDE)
    params, data = concrete(args, ["params", "batch"])
    expected = jnp.argmax(jax.jit(forward, compiler_options=QUICK)(params, data), axis=-1)
    prefill, args, options = build("mamba-tiny-prefill", batch=2, seq=prompt, chunk=3, layers=layers, scan=scan, **WIDE)
    _, cache, _ = concrete(args, ["params", "cache", "batch"])
    start = jax.jit(prefill, compiler_options=QUICK, **options)
    cache, following = start(params, cache, {"tokens": data["tokens"][:, :prompt]})
    np.testing.assert_array_equal(following, expected[:, prompt - 1])
    decode, _, options = build("mamba-tiny-decode", batch=2, layers=layers, scan=scan, **WIDE)
    step = jax.jit(decode, compiler_options=QUICK, **options)
    for position in range(prompt, 9):
        cache, following = step(params, cache, {"tokens": data["tokens"][:, position]})
        np.testing.assert_array_equal(following, expected[:, position])


def test_an_encoder_decoder_answers_as_it_scores() -> None:
    """The prompt's pass takes the first step, from the padding token; the encoder's keys are computed once."""
    settings: dict[str, Any] = {"batch": 2, "seq": 7, "target": 4, "layers": 1, **WIDE}
    forward, args, _ = build("t5-tiny-forward", **settings)
    params, data = concrete(args, ["params", "batch"])
    data["tokens"] = data["tokens"].at[:, 0].set(0)
    expected = jnp.argmax(jax.jit(forward, compiler_options=QUICK)(params, data), axis=-1)
    prefill, args, options = build("t5-tiny-prefill", **settings)
    _, cache, _ = concrete(args, ["params", "cache", "batch"])
    start = jax.jit(prefill, compiler_options=QUICK, **options)
    cache, following = start(params, cache, {"inputs": data["inputs"]})
    np.testing.assert_array_equal(following, expected[:, 0])
    decode, _, options = build("t5-tiny-decode", **settings)
    step = jax.jit(decode, compiler_options=QUICK, **options)
    for position in range(1, 4):
        inputs = {"tokens": data["tokens"][:, position], "position": jnp.int32(position)}
        cache, following = step(params, cache, inputs)
        np.testing.assert_array_equal(following, expected[:, position])


def test_alibi_falls_with_distance_and_sinks_take_their_share() -> None:
    """Press 2022: 2^-8/n and its powers; of twelve heads four have every other slope of sixteen."""
    assert slopes(8) == [2.0**-i for i in range(1, 9)]
    assert slopes(12)[8:] == [2.0 ** (-i / 2) for i in (1, 3, 5, 7)]
    q = jnp.zeros((1, 1, 1, 2))
    k, v = jnp.zeros((1, 2, 1, 2)), jnp.asarray([[[[1.0, 0.0]], [[0.0, 1.0]]]])
    # Equal scores but for a bias of log 3: shares of 1/4 and 3/4; a sink of log 4 takes half of them.
    bias = jnp.log(jnp.asarray([[1.0, 3.0]]))
    np.testing.assert_allclose(attention(q, k, v, bias=bias)[0, 0, 0], [0.25, 0.75], rtol=1e-6)
    shares = attention(q, k, v, bias=bias, sinks=jnp.log(jnp.asarray([4.0])))[0, 0, 0]
    np.testing.assert_allclose(shares, [0.125, 0.375], rtol=1e-6)


def test_only_plain_attention_has_biased_scores() -> None:
    fn, args, _ = build("llama3-tiny", seq=16, sinks=True, attention="flash", layers=1)
    with pytest.raises(UnsupportedError, match="attention sinks: only plain attention"):
        jax.eval_shape(fn, *args)


def test_local_layers_keep_their_window_and_latents_are_narrow() -> None:
    _, (_, cache, _), _ = build("gemma2-2b-decode", batch=1, context=8192, scan=True)
    assert [layer["k"].shape[-2] for layer in cache["layers"]] == [4096, 8192]
    _, (_, cache, _), _ = build("deepseek-v3-decode", batch=1, context=4096)
    per_position = sum(leaf.size for leaf in jax.tree.leaves(cache)) / 4096
    assert per_position == 61 * (512 + 64)  # DeepSeek-V2, section 2.1.4: a latent and one rotated key a layer


def test_a_prompt_longer_than_its_cache_is_refused() -> None:
    with pytest.raises(UsageError, match=r"seq=64 does not fit context=32"):
        build("llama3-tiny-prefill", seq=64, context=32)
    with pytest.raises(UsageError, match="2048 is longer than the model's 1024 positions"):
        build("gpt2-small-decode", context=2048)


@pytest.mark.parametrize(
    ("name", "settings", "parts"),
    [
        ("llama3-tiny", {"layers": 1}, (3, 2, 4)),
        ("gemma2-tiny", {}, (5, 10, 3)),  # windows of eight: a cache that a chunk goes round, and one longer than it
        ("deepseek-tiny", {**ROOM, "layers": 2}, (2, 3)),
        ("gpt2-tiny", {"layers": 1}, (2, 3)),
        ("llama3-tiny", {**BIASED, "norm": "layer", "alibi": True, "kv_heads": 8}, (3, 2)),
    ],
)
def test_a_prompt_in_chunks_is_the_prompt(name: str, settings: dict[str, Any], parts: tuple[int, ...]) -> None:
    """Chunks attend to what the cache has of those before them: the same token follows, and the same cache is left."""
    length = sum(parts)
    settings = {"batch": 2, "context": length + 1, **WIDE, **settings}
    prefill, args, _ = build(f"{name}-prefill", seq=length, **settings)
    params, cache, data = concrete(args, ["params", "cache", "batch"])
    whole, expected = jax.jit(prefill, compiler_options=QUICK)(params, cache, data)
    past = 0
    for part in parts:
        prefill, _, _ = build(f"{name}-prefill", seq=part, past=past, **settings)
        tokens = data["tokens"][:, past : past + part]
        cache, following = jax.jit(prefill, compiler_options=QUICK)(params, cache, {"tokens": tokens})
        past += part
    np.testing.assert_array_equal(following, expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), cache, whole)
