"""Fidelity `analytical`: GPU kernels from a model of the machine."""

from meshcast.estimate.estimator import Clocks as Clocks
from meshcast.estimate.gpu.estimator import GpuAnalytical as GpuAnalytical
from meshcast.estimate.gpu.parameters import GpuCalibration as GpuCalibration
from meshcast.estimate.gpu.parameters import GpuParameters as GpuParameters
