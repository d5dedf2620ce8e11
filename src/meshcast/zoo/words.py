"""Words that models, plans and stacks share; listing them imports no jax."""

from __future__ import annotations

from typing import Literal

Remat = Literal[
    "none", "autodiff", "products", "attention", "projections", "heads", "selective", "alternate", "full", "whole"
]  # fmt: skip
"""What the backward pass computes again of a layer (`saving.POLICIES`):

`none`: nothing that kernels with a backward pass of their own do not; `autodiff`: nothing at all, as differentiating op by op
does; `products`: all but products; `attention`: all but attention; `projections`: all
but the products with weights around attention, whose core runs again; `heads`: all but what
makes queries, keys and values; `selective`: all but products with weights, hence attention
too; `alternate`: all but attention and every second product with weights, and none of those in fp8 is kept; `full`: all of it
that the backward pass reads, so not the last product; `whole`: the layer to its end.
"""
MARKED: tuple[Remat, ...] = ("none", "attention", "projections", "heads")
"""Those that save what a model marks (`saving.kept`)."""
UNMARKED: tuple[Remat, ...] = ("autodiff", "products", "selective", "full", "whole")
"""What models have that do not mark all of it."""
Gradients = Literal["fp32", "bf16"]
"""The type that gradients are added up, kept and reduced over replicas in."""
SERVE = "serve"
"""The mode of both passes of requests: a prompt's, and a decoding step."""
BATCH = ("data", "fsdp", "expert")
"""The axes that split the batch: the minor one last, so that an all-to-all can move it to the experts."""
AttentionWord = Literal[
    "auto", "plain", "plain-bf16", "flash", "ring", "all-gather", "flash-ring", "flash-all-gather", "flash-parts"
]  # fmt: skip
"""How a model attends (`attending.attend`), and how it meets the keys of other devices where they share a sequence."""
AUTO = "auto"
"""How a model attends where nobody says: by the fused kernel where the device has one for it, by products elsewhere."""
LARGEST_HEAD = 256
"""The widest head that any GPU's fused kernel takes: cuDNN's from Hopper on, composable-kernel's."""
FUSED_PLATFORMS = ("cuda", "rocm", "tpu")
"""Whose kernels of fused attention `fused` calls, by the names that JAX has for them."""
