"""The real XLA:GPU compiler, ahead of time, on a machine without a GPU."""

from meshcast.lower.xla_gpu.lowering import lower_compiled as lower_compiled
from meshcast.lower.xla_gpu.lowering import why_not as why_not
