"""Programs in: JAX functions, PyTorch modules, jax.export artifacts, StableHLO and HLO files become one `Program`."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
