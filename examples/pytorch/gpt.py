"""GPT-2 in PyTorch: the zoo's own mathematics, as PyTorch users write it.

meshcast predict examples/pytorch/gpt.py:train --on h200
meshcast predict examples/pytorch/gpt.py:tensor_parallel --on dgx-h100
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        h = self.norm1(x)
        q, k, v = (
            project(h).view(batch, length, self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, *, layers: int, dim: int, heads: int, vocab: int = 50257, positions: int = 1024) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(positions, dim)
        self.layers = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def gpt2_small() -> GPT:
    with torch.device("meta"):
        return GPT(layers=12, dim=768, heads=12)


def tokens(batch: int = 8, length: int = 1024) -> Tensor:
    return torch.empty(batch, length, dtype=torch.long, device="meta")


def forward() -> tuple[nn.Module, tuple[Tensor]]:
    return gpt2_small().eval(), (tokens(),)


def train() -> tuple[nn.Module, tuple[Tensor], dict[str, object]]:
    """One AdamW step in bfloat16 over fp32 weights."""
    options = {
        "train": True,
        "loss": cross_entropy,
        "targets": (tokens(),),
        "optimizer": "adamw",
        "clip_grad_norm": 1.0,
        "compute_dtype": "bfloat16",
    }
    return gpt2_small(), (tokens(),), options


def train_plain() -> tuple[nn.Module, tuple[Tensor], dict[str, object]]:
    """The same step with attention as two products around a softmax, as the zoo's `gpt2-small` has it."""
    module, args, options = train()
    return module, args, {**options, "attention": "math"}


def tensor_parallel() -> tuple[nn.Module, tuple[Tensor], dict[str, object]]:
    """The same over eight GPUs: two replicas, each over four, as Megatron splits a block."""
    module, args, options = train()
    plan = {
        "layers.*.query.*": {"tp": 0},
        "layers.*.key.*": {"tp": 0},
        "layers.*.value.*": {"tp": 0},
        "layers.*.up.*": {"tp": 0},
        "layers.*.out.weight": {"tp": 1},
        "layers.*.down.weight": {"tp": 1},
    }
    return module, args, {**options, "mesh": {"dp": 2, "tp": 4}, "plan": plan}
