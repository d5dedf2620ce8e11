"""Published decoders: Llama, Mistral, Phi-3, Qwen, Gemma, Mixtral, DeepSeek.

Sizes after the models' papers and the `config.json` published with their weights.
"""

from __future__ import annotations

from meshcast.zoo.shapes.decoder import DecoderConfig
from meshcast.zoo.shapes.shape import Shape

_LLAMA2 = {"vocab": 32000, "rope_theta": 1e4}
_QWEN2 = {"vocab": 152064, "rope_theta": 1e6, "qkv_bias": True}
_QWEN3 = {"vocab": 151936, "rope_theta": 1e6, "qk_norm": True}
_QWEN3_MOE = _QWEN3 | {"experts": 128, "active": 8, "dispatch": "gather", "balance": 0.001}
_GEMMA = {"vocab": 256000, "rope_theta": 1e4, "tied": True, "activation": "gelu", "scaled_embedding": True}
_GEMMA2 = _GEMMA | {
    "post_norms": True, "attention_cap": 50.0, "logit_cap": 30.0, "window": 4096, "global_every": 2,
}  # fmt: skip
_GEMMA3 = _GEMMA | {
    "vocab": 262208, "post_norms": True, "qk_norm": True, "window": 1024, "global_every": 6, "rope_theta": 1e6,
    "local_theta": 1e4,
}  # fmt: skip
_LATENT = {"latent_rank": 512, "rope_dim": 64, "value_dim": 128, "rope_theta": 1e4, "dispatch": "gather"}


def _decoder(layers: int, dim: int, heads: int, kv_heads: int, ffn: int, **rest: object) -> DecoderConfig:
    return DecoderConfig(layers=layers, dim=dim, heads=heads, kv_heads=kv_heads, ffn=ffn, **rest)  # type: ignore[arg-type]


_CONFIGS: dict[str, tuple[str, DecoderConfig]] = {
    "llama3-tiny": (
        "Llama 3 with two small layers", _decoder(2, 64, 8, 4, 128, vocab=512, head_dim=16)),
    "llama2-7b": ("Llama 2 7B", _decoder(32, 4096, 32, 32, 11008, **_LLAMA2)),
    "llama2-13b": ("Llama 2 13B", _decoder(40, 5120, 40, 40, 13824, **_LLAMA2)),
    "llama2-70b": ("Llama 2 70B", _decoder(80, 8192, 64, 8, 28672, **_LLAMA2)),
    "llama3.2-1b": ("Llama 3.2 1B, tied embeddings", _decoder(16, 2048, 32, 8, 8192, head_dim=64, tied=True)),
    "llama3.2-3b": ("Llama 3.2 3B, tied embeddings", _decoder(28, 3072, 24, 8, 8192, tied=True)),
    "llama3-8b": ("Llama 3 and 3.1 8B", _decoder(32, 4096, 32, 8, 14336)),
    "llama3-70b": ("Llama 3, 3.1 and 3.3 70B", _decoder(80, 8192, 64, 8, 28672)),
    "llama3-405b": ("Llama 3.1 405B", _decoder(126, 16384, 128, 8, 53248)),
    "mistral-7b": (
        "Mistral 7B v0.1, a window of 4096",
        _decoder(32, 4096, 32, 8, 14336, vocab=32000, rope_theta=1e4, window=4096)),
    "phi3-mini": (
        "Phi-3 mini (3.8B)", _decoder(32, 3072, 32, 32, 8192, vocab=32064, head_dim=96, rope_theta=1e4)),
    "qwen2.5-0.5b": (
        "Qwen 2 and 2.5 0.5B",
        _decoder(24, 896, 14, 2, 4864, **_QWEN2 | {"vocab": 151936}, head_dim=64, tied=True)),
    "qwen2.5-1.5b": (
        "Qwen 2 and 2.5 1.5B", _decoder(28, 1536, 12, 2, 8960, **_QWEN2 | {"vocab": 151936}, tied=True)),
    "qwen2.5-3b": ("Qwen 2.5 3B", _decoder(36, 2048, 16, 2, 11008, **_QWEN2 | {"vocab": 151936}, tied=True)),
    "qwen2.5-7b": ("Qwen 2 and 2.5 7B", _decoder(28, 3584, 28, 4, 18944, **_QWEN2)),
    "qwen2.5-14b": ("Qwen 2.5 14B", _decoder(48, 5120, 40, 8, 13824, **_QWEN2)),
    "qwen2.5-32b": ("Qwen 2.5 32B", _decoder(64, 5120, 40, 8, 27648, **_QWEN2)),
    "qwen2.5-72b": ("Qwen 2.5 72B", _decoder(80, 8192, 64, 8, 29568, **_QWEN2)),
    "qwen3-0.6b": ("Qwen 3 0.6B", _decoder(28, 1024, 16, 8, 3072, **_QWEN3, tied=True)),
    "qwen3-8b": ("Qwen 3 8B", _decoder(36, 4096, 32, 8, 12288, **_QWEN3)),
    "qwen3-32b": ("Qwen 3 32B", _decoder(64, 5120, 64, 8, 25600, **_QWEN3)),
    "qwen3-30b-a3b": (
        "Qwen 3 MoE, 3B of 30B active", _decoder(48, 2048, 32, 4, 6144, **_QWEN3_MOE, expert_ffn=768)),
    "qwen3-235b-a22b": (
        "Qwen 3 MoE, 22B of 235B active", _decoder(94, 4096, 64, 4, 12288, **_QWEN3_MOE, expert_ffn=1536)),
    "qwen1.5-moe-a2.7b": (
        "Qwen 1.5 MoE with shared experts, 2.7B of 14.3B active",
        _decoder(
            24, 2048, 16, 16, 5632, **_QWEN2 | {"vocab": 151936}, experts=60, active=4, expert_ffn=1408,
            shared_ffn=5632, shared_gate=True, dispatch="gather", balance=0.001)),
    "gemma-2b": ("Gemma 2B", _decoder(18, 2048, 8, 1, 16384, **_GEMMA, head_dim=256)),
    "gemma-7b": ("Gemma 7B", _decoder(28, 3072, 16, 16, 24576, **_GEMMA, head_dim=256)),
    "gemma2-tiny": (
        "Gemma 2 with four small layers",
        _decoder(4, 64, 4, 2, 128, **_GEMMA2 | {"vocab": 512, "window": 8}, head_dim=16)),
    "gemma2-2b": ("Gemma 2 2B", _decoder(26, 2304, 8, 4, 9216, **_GEMMA2, head_dim=256)),
    "gemma2-9b": ("Gemma 2 9B", _decoder(42, 3584, 16, 8, 14336, **_GEMMA2, head_dim=256)),
    "gemma2-27b": ("Gemma 2 27B", _decoder(46, 4608, 32, 16, 36864, **_GEMMA2)),
    "gemma3-1b": (
        "Gemma 3 1B",
        _decoder(26, 1152, 4, 1, 6912, **_GEMMA3 | {"vocab": 262144, "window": 512}, head_dim=256)),
    "gemma3-4b": ("Gemma 3 4B, its text model", _decoder(34, 2560, 8, 4, 10240, **_GEMMA3, head_dim=256)),
    "gemma3-12b": ("Gemma 3 12B, its text model", _decoder(48, 3840, 16, 8, 15360, **_GEMMA3, head_dim=256)),
    "gemma3-27b": ("Gemma 3 27B, its text model", _decoder(62, 5376, 32, 16, 21504, **_GEMMA3)),
    "mixtral-tiny": (
        "Mixtral with two small layers of eight experts",
        _decoder(2, 64, 4, 2, 128, vocab=512, head_dim=16, rope_theta=1e6, experts=8, group=64)),
    "mixtral-8x7b": (
        "Mixtral 8x7B", _decoder(32, 4096, 32, 8, 14336, vocab=32000, rope_theta=1e6, experts=8)),
    "mixtral-8x22b": (
        "Mixtral 8x22B", _decoder(56, 6144, 48, 8, 16384, vocab=32000, rope_theta=1e6, experts=8)),
    "deepseek-tiny": (
        "DeepSeek-V3 with three small layers, one of them dense",
        _decoder(
            3, 64, 4, 4, 128, **_LATENT | {"latent_rank": 32, "rope_dim": 8, "value_dim": 16}, vocab=512, head_dim=16,
            query_rank=48, dense_layers=1, experts=8, active=2, expert_ffn=32, shared_ffn=32, biased_router=True,
            group=64, balance=0.0001)),
    "deepseek-v2-lite": (
        "DeepSeek-V2-Lite, 2.4B of 15.7B active",
        _decoder(
            27, 2048, 16, 16, 10944, **_LATENT, vocab=102400, dense_layers=1, experts=64, active=6, expert_ffn=1408,
            shared_ffn=2816, balance=0.001)),
    "deepseek-v2": (
        "DeepSeek-V2, 21B of 236B active",
        _decoder(
            60, 5120, 128, 128, 12288, **_LATENT, vocab=102400, query_rank=1536, dense_layers=1, experts=160, active=6,
            expert_ffn=1536, shared_ffn=3072, balance=0.003)),
    "deepseek-v3": (
        "DeepSeek-V3 and R1 without the extra prediction layer, 37B of 671B active",
        _decoder(
            61, 7168, 128, 128, 18432, **_LATENT, vocab=129280, query_rank=1536, dense_layers=3, experts=256, active=8,
            expert_ffn=2048, shared_ffn=2048, biased_router=True, balance=0.0001)),
}  # fmt: skip

SHAPES = {name: Shape(config=config, summary=summary) for name, (summary, config) in _CONFIGS.items()}
