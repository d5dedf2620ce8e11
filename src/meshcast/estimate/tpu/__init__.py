"""Fidelity `analytical` on TPUs: systolic passes, vector work, HBM and VMEM, windows that overlap."""

from meshcast.estimate.tpu.estimator import TpuAnalytical as TpuAnalytical
from meshcast.estimate.tpu.parameters import TpuCalibration as TpuCalibration
from meshcast.estimate.tpu.parameters import TpuParameters as TpuParameters
