"""How XLA compiles for the CPU that tests run on: quickly, as what is compiled runs once.

One module of machine code, not one for each of many threads, and none of LLVM's expensive passes. Releases that can still do
without MLIR's emitters of fusions compile four times as fast without them; others refuse the option.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

QUICK: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
    **({"xla_cpu_use_fusion_emitters": False} if metadata.version("jaxlib").startswith("0.10.") else {}),
}


def flags() -> str:
    """The same as `XLA_FLAGS` has it: for what tests compile without options, such as every operation outside of `jax.jit`."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in QUICK.items())
