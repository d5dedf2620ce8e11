"""PyTorch in: an `nn.Module`, a training step of one, or a function of tensors becomes a `Program`, without weights.

`capture` has both ways. `torchax` runs PyTorch's operators on JAX's tracers, so a module's own `forward` is traced and JAX lowers
and differentiates it (`tracing`). Or a step is recorded as PyTorch's own calls (`recording`), which become the kernels that eager
PyTorch (`eager`) or `torch.compile` (`inductor`) would launch, written as a scheduled program (`launches`). Nothing here imports
torch until a PyTorch object is captured.
"""

from meshcast.programs.pytorch.capture import capture_torch as capture_torch
from meshcast.programs.pytorch.library import holds_torch as holds_torch
from meshcast.programs.pytorch.library import of_exported_program as of_exported_program
from meshcast.programs.pytorch.options import TorchOptions as TorchOptions
