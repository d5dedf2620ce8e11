"""Fidelity `analytical` on TPUs: systolic passes, vector work, HBM and VMEM, windows that overlap."""

from meshcast.estimate.tpu.estimator import TpuAnalytical as TpuAnalytical
from meshcast.estimate.tpu.parameters import Calibration as Calibration
from meshcast.estimate.tpu.parameters import Parameters as Parameters
