"""Programs in: JAX functions, PyTorch modules, jax.export artifacts, StableHLO and HLO files become one `Program`."""

from meshcast.capture.exported import from_exported as from_exported
from meshcast.capture.files import from_bytes as from_bytes
from meshcast.capture.files import read_program as read_program
from meshcast.capture.jax_function import capture as capture
from meshcast.capture.jax_function import from_lowered as from_lowered
from meshcast.capture.program import Argument as Argument
from meshcast.capture.program import Program as Program
from meshcast.capture.program import Role as Role
from meshcast.capture.pytorch import TorchOptions as TorchOptions
from meshcast.capture.pytorch import capture_torch as capture_torch
from meshcast.capture.target import CaptureOptions as CaptureOptions
from meshcast.capture.target import load as load
