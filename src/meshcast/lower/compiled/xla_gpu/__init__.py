"""The real XLA:GPU compiler, ahead of time, on a machine without a GPU."""

from meshcast.lower.compiled.xla_gpu.compiler import compile_program as compile_program
from meshcast.lower.compiled.xla_gpu.compiler import why_not as why_not
