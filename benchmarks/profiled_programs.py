"""Programs that `profile_many.py` profiles and the zoo does not have: targets of `meshcast predict`, too."""

from __future__ import annotations

from typing import Any

BATCH, LENGTH, DIM, HEADS = 4, 2048, 1024, 8


def fused_attention() -> tuple[Any, tuple[Any, ...]]:
    """The gradients of two projected layers of attention by cuDNN's fused kernels."""
    import jax
    import jax.numpy as jnp

    def layer(x: Any, weights: Any) -> Any:
        q, k, v = (jnp.einsum("bld,dhe->blhe", x, w).reshape(BATCH, LENGTH, HEADS, DIM // HEADS) for w in weights["in"])
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        return x + jnp.einsum("blhe,hed->bld", mixed, weights["out"])

    def loss(weights: Any, x: Any) -> Any:
        for each in weights:
            x = layer(x, each)
        return jnp.sum(jnp.square(x.astype(jnp.float32)))

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, jnp.bfloat16)

    projection = shape(DIM, HEADS, DIM // HEADS)
    weights = [{"in": [projection] * 3, "out": shape(HEADS, DIM // HEADS, DIM)} for _ in range(2)]
    return jax.grad(loss), (weights, shape(BATCH, LENGTH, DIM))


def torch_llama() -> Any:
    """Four layers and the head of Llama 3.2 1B, in bfloat16."""
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

    dim, heads, groups, hidden, vocab = 2048, 32, 8, 8192, 128256
    size = dim // heads

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.RMSNorm(dim), nn.RMSNorm(dim)
            self.query, self.out = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
            self.key, self.value = (nn.Linear(dim, groups * size, bias=False) for _ in range(2))
            self.gate, self.up = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
            self.down = nn.Linear(hidden, dim, bias=False)

        def forward(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
            batch, length, _ = x.shape
            h = self.before(x)
            q, k, v = (
                project(h).view(batch, length, -1, size).transpose(1, 2)
                for project in (self.query, self.key, self.value)
            )
            q, k = (self.turned(y, *turn) for y in (q, k))
            k, v = (y.repeat_interleave(heads // groups, dim=1) for y in (k, v))
            h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(h.transpose(1, 2).reshape(batch, length, dim))
            h = self.between(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

        @staticmethod
        def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
            left, right = x.chunk(2, dim=-1)
            return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)

    class Llama(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocab, dim)
            self.layers = nn.ModuleList(Layer() for _ in range(4))
            self.norm = nn.RMSNorm(dim)

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.tokens(tokens)
            place = torch.arange(tokens.shape[1], device=tokens.device, dtype=torch.float32)
            speed = 500000.0 ** (-torch.arange(0, size, 2, device=tokens.device, dtype=torch.float32) / size)
            angle = place[:, None] * speed
            turn = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
            for layer in self.layers:
                x = layer(x, turn)
            return F.linear(self.norm(x), self.tokens.weight)

    with torch.device("meta"):
        return Llama().to(torch.bfloat16)


def torch_llama_forward() -> tuple[Any, tuple[Any, ...]]:
    """Its forward pass on two sequences of 2048."""
    import torch

    return torch_llama().eval(), (torch.empty(2, 2048, dtype=torch.long, device="meta"),)


def torch_llama_train() -> tuple[Any, tuple[Any, ...], dict[str, object]]:
    """A training step of it, on one sequence of 2048, with SGD and gradients clipped."""
    import torch

    def loss(logits: Any, targets: Any) -> Any:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    module, tokens = torch_llama(), torch.empty(1, 2048, dtype=torch.long, device="meta")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    options = {"train": True, "loss": loss, "targets": (tokens,), "optimizer": optimizer, "clip_grad_norm": 1.0}
    return module, (tokens,), options


def torch_encoder() -> tuple[Any, tuple[Any, ...]]:
    """Six layers of PyTorch's own Transformer encoder on 16 sequences of 384, in bfloat16."""
    import torch

    with torch.device("meta"):
        layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True)
        module = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(torch.bfloat16)
        # In training mode its layers run as separate operators: PyTorch's fast path is for its own inference.
        return module.train(), (torch.empty(16, 384, 768, dtype=torch.bfloat16),)
