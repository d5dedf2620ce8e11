"""Traces of real runs, whoever wrote them, as one type: kernels of one device with name, stream, start and duration."""

from meshcast.evidence.profiler.reading import read_traces as read_traces
from meshcast.evidence.profiler.steps import MeasuredStep as MeasuredStep
from meshcast.evidence.profiler.steps import StepSearch as StepSearch
from meshcast.evidence.profiler.steps import find_steps as find_steps
from meshcast.evidence.profiler.trace import MeasuredKernel as MeasuredKernel
from meshcast.evidence.profiler.trace import MeasuredTrace as MeasuredTrace
