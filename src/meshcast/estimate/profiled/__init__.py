"""Fidelity `profiled`: measured kernels with learned interpolation between them."""

from meshcast.estimate.profiled.estimator import Profiled as Profiled
from meshcast.estimate.profiled.interpolator import Interpolator as Interpolator
from meshcast.estimate.profiled.interpolator import Row as Row
from meshcast.estimate.profiled.interpolator import build as build
