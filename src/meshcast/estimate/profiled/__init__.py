"""Fidelity `profiled`: measured kernels with learned interpolation between them."""

from meshcast.estimate.profiled.estimator import Profiled as Profiled
from meshcast.estimate.profiled.interpolator import Interpolator as Interpolator
from meshcast.estimate.profiled.interpolator import InterpolatorRow as InterpolatorRow
from meshcast.estimate.profiled.interpolator import build_interpolator as build_interpolator
