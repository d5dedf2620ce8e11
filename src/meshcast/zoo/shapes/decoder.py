"""The configuration that decoders without learned positions share, and its layer pattern.

Llama, Mistral, Phi-3, Qwen, Gemma, Mixtral, DeepSeek, gpt-oss, OLMo, Command R, GPT-NeoX, Falcon, BLOOM and StarCoder 2 are
settings of one model; a setting of zero leaves its part out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshcast.zoo.shapes.checks import require, require_divides, require_one_of
from meshcast.zoo.words import Remat

ACTIVATIONS = ("silu", "gelu", "exact_gelu", "relu", "squared_relu", "clipped_swiglu")
NORMS = ("rms", "layer", "scaled", "bare")
"""Root mean square; zero mean and unit variance with scale and bias, with a scale, with neither."""
DISPATCHES = ("einsum", "gather")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStack:
    """Equal groups of layers that one scan walks: `count` times one layer per entry of `windows`.

    A window of zero is attention to every earlier position. Layers that are `kept` are not computed again, whatever others are.
    """

    name: str
    count: int
    windows: tuple[int, ...]
    routed: bool
    kept: bool = False

    def remat(self, asked: Remat) -> Remat:
        """What the backward pass computes again of its layers, where `asked` is what it does of others."""
        return "none" if self.kept else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """The sizes of a decoder, and which of its optional parts it has.

    Attributes:
        ffn: Width of a dense feed-forward layer, and of an expert where `expert_ffn` is zero.
        head_dim: Width of a head; of its part without positions in latent attention.
        tied: The embedding is the output projection too.
        gated: Dense feed-forward layers have a gate beside their first product; without it they have two products.
        qkv_bias: Biases on the query, key and value projections (Qwen 2). `out_bias`: on the one after attention,
            `ffn_bias`: on those of dense feed-forward layers, `expert_bias`: on the router's and the experts'.
        qk_norm: Normalised queries and keys, per head (Qwen 3, Gemma 3). `wide_qk_norm`: over all heads at once (OLMo 2).
        norm: One of `NORMS`.
        pre_norms: Each half of a layer reads normalised activations; OLMo 2 does not.
        post_norms: Each half of a layer is normalised before its residual sum as well (Gemma 2).
        embedding_norm: So is the embedding (BLOOM).
        parallel_norms: Both halves of a layer read the same activations, through one norm (Falcon 7B, Command R) or
            through two (GPT-NeoX, Falcon 40B); zero where the second reads what the first has made.
        rotated: Leading numbers of a head that rotary positions turn; zero for all (GPT-NeoX turns a quarter).
        alibi: Scores fall with distance, at a slope of their head (Press 2022), and nothing is rotated (BLOOM).
        sinks: Every head has a score of no position in its softmax (gpt-oss).
        scaled_embedding: Embeddings times the root of the width (Gemma).
        attention_cap: Scores squashed to +-cap by tanh (Gemma 2); zero for none. `logit_cap` likewise.
        window: Positions that a local layer sees; zero where all layers are global.
        global_every: In every so many layers the last is global and the others are local; zero where all are local.
        pattern_start: Where in that pattern the first layer stands: of a part of a model.
        local_theta: Rotary base of local layers; zero for `rope_theta`.
        experts: Routed experts of a layer; zero for dense layers. Each token goes to `active` of them.
        shared_ffn: Width of the experts that every token passes; `shared_gate` weighs them by token (Qwen 2 MoE).
        dense_layers: Leading layers without experts (DeepSeek).
        biased_router: Sigmoid scores, chosen by score plus a balancing bias (DeepSeek-V3), not by softmax.
        group: Tokens compete for an expert's capacity within groups of so many neighbours.
        dispatch: Tokens reach experts by products with one-hot matrices (GShard), or by gathers.
        whole_experts: Experts are shared out over "tensor" too, each whole on its device, and tokens go to them from their shares
            of the positions (Megatron's `expert_tensor_parallel_size=1`); else "tensor" splits every expert's width.
        latent_rank: Width of the compressed keys and values (MLA, DeepSeek-V2); zero for plain attention.
        query_rank: Width of the compressed query; zero for a plain projection.
        rope_dim: Width of a latent head's rotated part. `value_dim`: width of its values.
        lora: Rank of adapters beside attention's projections, which are trained in place of all weights; zero for none.
        recomputed: Leading layers, of every part of a pipeline, that the backward pass computes again as it is asked to, where it
            keeps those behind (Megatron's `--recompute-method block`); zero for all.
        scan: Layers are one loop over stacked weights; if not, each has arrays of its own, as serving engines keep them.
    """

    layers: int
    dim: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int = 128256
    head_dim: int = 128
    rope_theta: float = 500000.0
    tied: bool = False
    activation: str = "silu"
    gated: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    norm: str = "rms"
    pre_norms: bool = True
    post_norms: bool = False
    embedding_norm: bool = False
    parallel_norms: int = 0
    out_bias: bool = False
    ffn_bias: bool = False
    expert_bias: bool = False
    wide_qk_norm: bool = False
    rotated: int = 0
    alibi: bool = False
    sinks: bool = False
    scaled_embedding: bool = False
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    window: int = 0
    global_every: int = 0
    pattern_start: int = 0
    local_theta: float = 0.0
    experts: int = 0
    active: int = 2
    expert_ffn: int = 0
    shared_ffn: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    biased_router: bool = False
    capacity_factor: float = 1.25
    balance: float = 0.02
    group: int = 1024
    dispatch: str = "einsum"
    whole_experts: bool = False
    latent_rank: int = 0
    query_rank: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    lora: int = 0
    recomputed: int = 0
    scan: bool = True

    def __post_init__(self) -> None:
        require_divides(self, "kv_heads", "heads")
        require_one_of(self, "activation", ACTIVATIONS)
        require_one_of(self, "dispatch", DISPATCHES)
        require_one_of(self, "norm", NORMS)
        require(self.capacity_factor > 0, "capacity_factor=0 leaves experts no room", "capacity_factor=1")
        require(self.rope_theta > 0, "rope_theta=0 is no base of rotary positions", "rope_theta=10000")
        require(self.parallel_norms <= 2, f"parallel_norms={self.parallel_norms} is not 0, 1 or 2")
        require(self.rotated <= self.head_dim, f"rotated={self.rotated} is more than head_dim={self.head_dim}")
        require(self.activation != "clipped_swiglu" or self.gated, "clipped_swiglu is a gate", "gated=true")
        require(not (self.qk_norm and self.wide_qk_norm), "qk_norm and wide_qk_norm are one or the other")
        require(self.pre_norms or not self.parallel_norms, "parallel_norms needs pre_norms", "pre_norms=true")
        require(not (self.alibi and self.window), f"alibi has no window={self.window} here", "window=0")
        rotated = "rope_dim" if self.latent_rank else "rotated" if self.rotated else "head_dim"
        require(getattr(self, rotated) % 2 == 0, f"{rotated}={getattr(self, rotated)} is odd; rotary positions pair it")
        if self.experts:
            require(
                0 < self.active <= self.experts, f"active={self.active} of experts={self.experts}", "active <= experts"
            )
            require(
                self.dense_layers < self.layers,
                f"dense_layers={self.dense_layers} leaves none of layers={self.layers} to the experts",
                "dense_layers < layers, or experts=0",
            )
        else:
            for field in ("shared_ffn", "dense_layers", "expert_ffn", "expert_bias", "whole_experts"):
                require(not getattr(self, field), f"{field}={getattr(self, field)} needs experts", f"{field}=0")
        if self.latent_rank:
            require(bool(self.rope_dim and self.value_dim), "latent attention needs rope_dim and value_dim")
            require(
                not (self.window or self.qkv_bias or self.qk_norm or self.wide_qk_norm or self.out_bias),
                "latent attention has neither windows, biases nor query norms",
                "window=0 qkv_bias=false qk_norm=false",
            )
            require(not (self.alibi or self.sinks or self.rotated), "latent attention has rotary positions of its own")
            require(not self.lora, f"lora={self.lora}: adapters stand beside plain projections alone", "lora=0")
        require(not self.global_every or bool(self.window), "global_every needs a window", "window=N")
        require(
            0 <= self.pattern_start < max(1, self.global_every),
            f"pattern_start={self.pattern_start} is no place in a pattern of {self.global_every} layers",
            "pattern_start=0",
        )

    @property
    def head_widths(self) -> tuple[int, ...]:
        """Widths of the heads that attend: of queries and keys, and of values where they are others."""
        return (self.head_dim + self.rope_dim, self.value_dim) if self.latent_rank else (self.head_dim,)

    @property
    def routed_ffn(self) -> int:
        """The width of one expert."""
        return self.expert_ffn or self.ffn

    def theta(self, window: int) -> float:
        """The rotary base of a layer with that window."""
        return self.local_theta if window and self.local_theta else self.rope_theta

    def part(self, first: int, layers: int) -> DecoderConfig:
        """The configuration of some layers in a row, as a model of its own: the pattern of local layers goes on where it was."""
        start = (self.pattern_start + first) % self.global_every if layers and self.global_every else 0
        dense = min(max(self.dense_layers - first, 0), layers)
        if self.experts and dense == layers:  # none too
            return replace(
                self,
                layers=layers,
                experts=0,
                dense_layers=0,
                expert_ffn=0,
                shared_ffn=0,
                expert_bias=False,
                whole_experts=False,
                pattern_start=start,
            )
        return replace(self, layers=layers, dense_layers=dense, pattern_start=start)

    def stacks(self) -> list[LayerStack]:
        """The layers in order, as scans walk them."""
        pattern: tuple[int, ...] = (self.window,)
        if self.global_every:
            pattern = (self.window,) * (self.global_every - 1) + (0,)
            pattern = pattern[self.pattern_start :] + pattern[: self.pattern_start]
        dense = self.dense_layers if self.experts else 0
        found, again = [], self.recomputed or self.layers
        for name, layers, routed in (
            ("dense_layers", dense, False),
            ("layers", self.layers - dense, bool(self.experts)),
        ):
            count, rest = divmod(layers, len(pattern))
            first = min(count, again // len(pattern)) if self.recomputed else count
            if first:
                found.append(LayerStack(name=name, count=first, windows=pattern, routed=routed))
            if first < count:
                kept = LayerStack(name=f"kept_{name}", count=count - first, windows=pattern, routed=routed, kept=True)
                found.append(kept)
            again = max(0, again - first * len(pattern))
            if rest:
                kept_too = again < rest
                found.append(
                    LayerStack(name=f"last_{name}", count=1, windows=pattern[:rest], routed=routed, kept=kept_too)
                )
                again = max(0, again - rest)
        if self.scan:
            return found
        return [
            replace(stack, name=f"{stack.name}_{index}", count=1) for stack in found for index in range(stack.count)
        ]
