"""The real TPU compiler (libtpu), ahead of time, on a machine without a TPU."""

from meshcast.lower.compiled.xla_tpu.compiler import OutOfMemoryError as OutOfMemoryError
from meshcast.lower.compiled.xla_tpu.compiler import compile_program as compile_program
from meshcast.lower.compiled.xla_tpu.compiler import why_not as why_not
