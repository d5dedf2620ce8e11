"""Traces of real runs, whoever wrote them, as one type: kernels of one device with name, stream, start and duration."""

from meshcast.measured.reading import read_traces as read_traces
from meshcast.measured.steps import Step as Step
from meshcast.measured.steps import StepSearch as StepSearch
from meshcast.measured.steps import find_steps as find_steps
from meshcast.measured.trace import MeasuredKernel as MeasuredKernel
from meshcast.measured.trace import MeasuredTrace as MeasuredTrace
