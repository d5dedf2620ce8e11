"""Models of transformers (4.57, the last releases with Flax classes), built from configurations: training steps and passes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import transformers

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import KEY, cross_entropy, integers, spec, training

TRANSFORMERS = Catalogue("transformers", "library", "llm")
CATALOGUES = [TRANSFORMERS]
BF16 = jnp.bfloat16


def made(kind: str, config: Any, length: int | None, dtype: Any = BF16) -> tuple[Any, Any]:
    """A model without weights, and the shapes of its weights (f32; computed with in `dtype`)."""
    sized = {} if length is None else {"input_shape": (1, length)}
    model = getattr(transformers, kind)(config, _do_init=False, dtype=dtype, **sized)
    shape = model.input_shape
    return model, jax.eval_shape(partial(model.init_weights, input_shape=shape), jax.random.key(0))


def tokens_step(kind: str, config: Any, batch: int, length: int, training_word: str = "train") -> Call:
    """A training step of a model with logits for every token, dropout as configured."""
    model, weights = made(kind, config, length)

    def loss(params: Any, key: Any, tokens: Any, labels: Any) -> Any:
        more = {"decoder_input_ids": tokens} if config.is_encoder_decoder else {}
        out = model(tokens, params=params, dropout_rng=key, **{training_word: True}, **more)
        return cross_entropy(out.logits, labels)

    words = integers(config.vocab_size, batch, length)
    return training(loss, weights, (KEY, words, words))


def images_step(kind: str, config: Any, batch: int, size: int, dtype: Any = BF16) -> Call:
    """A training step of a classifier of images; batch statistics, where it has them, as they are."""
    model, weights = made(kind, config, None, dtype)

    def loss(params: Any, key: Any, images: Any, labels: Any) -> Any:
        return cross_entropy(model(images, params=params, dropout_rng=key, train=True).logits, labels)

    return training(loss, weights, (KEY, spec(batch, 3, size, size), integers(config.num_labels, batch)))


def passed(kind: str, config: Any, inputs: Any, length: int | None = None, dtype: Any = BF16, **given: Any) -> Call:
    """A forward pass with weights in the type that is computed with."""
    model, weights = made(kind, config, length, dtype)
    weights = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), weights)
    return (lambda params, x: model(x, params=params, **given)[0]), (weights, inputs)


def seq2seq_pass(kind: str, config: Any, inputs: Any, length: int) -> Call:
    """A forward pass of encoder and decoder."""
    model, weights = made(kind, config, None)
    weights = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, BF16), weights)
    words = integers(config.vocab_size, inputs.shape[0], length)
    return (lambda params, x, y: model(x, decoder_input_ids=y, params=params)[0]), (weights, inputs, words)


def decoding(kind: str, config: Any, batch: int, length: int) -> Call:
    """One token more for every sequence of a batch, with the cache that the library keeps."""
    model, weights = made(kind, config, None)
    weights = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, BF16), weights)
    cache = jax.eval_shape(lambda: model.init_cache(batch, length))

    def step(params: Any, cache: Any, tokens: Any, places: Any, mask: Any) -> Any:
        out = model(tokens, attention_mask=mask, position_ids=places, params=params, past_key_values=cache)
        return out.logits, out.past_key_values

    words, places = integers(config.vocab_size, batch, 1), integers(length, batch, 1)
    return step, (weights, cache, words, places, integers(2, batch, length))


T = transformers
add = partial(TRANSFORMERS.add, dtype="mixed")
add("transformers_bert_mlm_train", lambda: tokens_step("FlaxBertForMaskedLM", T.BertConfig(), 32, 256), "train")
add(
    "transformers_roberta_mlm_train",
    lambda: tokens_step(
        "FlaxRobertaForMaskedLM", T.RobertaConfig(vocab_size=50265, max_position_embeddings=514), 16, 512
    ),
    "train",
)
add(
    "transformers_albert_mlm_train",
    lambda: tokens_step(
        "FlaxAlbertForMaskedLM",
        T.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072),
        32,
        256,
    ),
    "train",
)
add(
    "transformers_electra_mlm_train", lambda: tokens_step("FlaxElectraForMaskedLM", T.ElectraConfig(), 64, 128), "train"
)
add(
    "transformers_roformer_mlm_train",
    lambda: tokens_step("FlaxRoFormerForMaskedLM", T.RoFormerConfig(num_hidden_layers=6), 16, 256),
    "train",
)
add("transformers_gpt2_train", lambda: tokens_step("FlaxGPT2LMHeadModel", T.GPT2Config(n_layer=8), 8, 512), "train")
add(
    "transformers_gpt_neo_train",
    lambda: tokens_step(
        "FlaxGPTNeoForCausalLM",
        T.GPTNeoConfig(hidden_size=768, num_layers=6, num_heads=12, attention_types=[[["global", "local"], 3]]),
        8,
        512,
    ),
    "train",
)
add(
    "transformers_opt_train",
    lambda: tokens_step("FlaxOPTForCausalLM", T.OPTConfig(num_hidden_layers=6), 8, 512, "return_dict"),
    "train",
)
add(
    "transformers_bart_train",
    lambda: tokens_step(
        "FlaxBartForConditionalGeneration",
        T.BartConfig(
            d_model=768,
            encoder_layers=4,
            decoder_layers=4,
            encoder_attention_heads=12,
            decoder_attention_heads=12,
            encoder_ffn_dim=3072,
            decoder_ffn_dim=3072,
        ),
        16,
        256,
    ),
    "train",
)
add(
    "transformers_llama_train",
    lambda: tokens_step(
        "FlaxLlamaForCausalLM",
        T.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16),
        4,
        1024,
    ),
    "train",
)
add(
    "transformers_bloom_train",
    lambda: tokens_step(
        "FlaxBloomForCausalLM", T.BloomConfig(hidden_size=1024, n_layer=4, n_head=16, vocab_size=50000), 8, 256
    ),
    "train",
)
bf16 = partial(TRANSFORMERS.add, dtype="bf16", group="llm")
bf16(
    "transformers_mistral_prefill",
    lambda: passed("FlaxMistralForCausalLM", T.MistralConfig(num_hidden_layers=4), integers(32000, 2, 2048), 2048),
    "infer",
)
bf16(
    "transformers_gemma_prefill",
    lambda: passed(
        "FlaxGemmaForCausalLM",
        T.GemmaConfig(
            hidden_size=2048,
            intermediate_size=16384,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=1,
            vocab_size=64000,
        ),
        integers(64000, 4, 1024),
        1024,
    ),
    "infer",
)
bf16(
    "transformers_gptj_prefill",
    lambda: passed("FlaxGPTJForCausalLM", T.GPTJConfig(n_layer=2), integers(50400, 2, 1024), 1024),
    "infer",
)
bf16(
    "transformers_llama_decode",
    lambda: decoding(
        "FlaxLlamaForCausalLM",
        T.LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=6, num_attention_heads=32),
        16,
        1024,
    ),
    "decode",
)
bf16("transformers_gpt2_decode", lambda: decoding("FlaxGPT2LMHeadModel", T.GPT2Config(n_layer=12), 32, 512), "decode")
bf16(
    "transformers_distilbert_pass",
    lambda: passed("FlaxDistilBertForMaskedLM", T.DistilBertConfig(), integers(30522, 128, 128), 128),
    "infer",
)
bf16(
    "transformers_big_bird_pass",
    lambda: passed("FlaxBigBirdForMaskedLM", T.BigBirdConfig(num_hidden_layers=4), integers(50358, 4, 2048), 2048),
    "infer",
)
bf16(
    "transformers_whisper_pass",
    lambda: seq2seq_pass(
        "FlaxWhisperForConditionalGeneration",
        T.WhisperConfig(
            d_model=512,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            encoder_ffn_dim=2048,
            decoder_ffn_dim=2048,
        ),
        spec(8, 80, 3000, dtype=BF16),
        128,
    ),
    "infer",
    group="audio",
)
images = partial(TRANSFORMERS.add, group="vision")
images(
    "transformers_vit_train",
    lambda: images_step("FlaxViTForImageClassification", T.ViTConfig(num_labels=1000), 64, 224),
    "train",
    dtype="mixed",
)
images(
    "transformers_beit_train",
    lambda: images_step("FlaxBeitForImageClassification", T.BeitConfig(num_labels=1000, num_hidden_layers=6), 32, 224),
    "train",
    dtype="mixed",
)
images(
    "transformers_resnet_pass",
    lambda: passed(
        "FlaxResNetForImageClassification", T.ResNetConfig(num_labels=1000), spec(64, 3, 224, 224, dtype=BF16)
    ),
    "infer",
    dtype="bf16",
)
images(
    "transformers_regnet_pass_f32",
    lambda: passed(
        "FlaxRegNetForImageClassification", T.RegNetConfig(num_labels=1000), spec(32, 3, 224, 224), dtype=jnp.float32
    ),
    "infer",
    dtype="f32",
)
images(
    "transformers_dinov2_pass",
    lambda: passed(
        "FlaxDinov2ForImageClassification", T.Dinov2Config(num_labels=1000), spec(32, 3, 224, 224, dtype=BF16)
    ),
    "infer",
    dtype="bf16",
)
images(
    "transformers_wav2vec2_pass_f32",
    lambda: passed(
        "FlaxWav2Vec2ForCTC",
        T.Wav2Vec2Config(num_hidden_layers=6, do_stable_layer_norm=True, feat_extract_norm="layer"),
        spec(8, 80000),
        dtype=jnp.float32,
    ),
    "infer",
    dtype="f32",
    group="audio",
)
