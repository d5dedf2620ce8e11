"""Seconds for kernels: one protocol, several fidelities, chosen by an explicit chain."""

from meshcast.estimate.chain import EstimatedKernels as EstimatedKernels
from meshcast.estimate.chain import KernelEstimate as KernelEstimate
from meshcast.estimate.chain import estimate_kernels as estimate_kernels
from meshcast.estimate.estimator import Estimates as Estimates
from meshcast.estimate.estimator import Estimator as Estimator
from meshcast.estimate.estimator import Origin as Origin
from meshcast.estimate.estimator import Support as Support
from meshcast.estimate.registry import estimator_names as estimator_names
from meshcast.estimate.registry import load_estimator as load_estimator
