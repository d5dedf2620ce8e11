"""Traces in: Chakra execution traces of a job's ranks as a workload, replayed or timed again on other hardware."""

from meshcast.traced.asking import DURATIONS as DURATIONS
from meshcast.traced.asking import check_asked as check_asked
from meshcast.traced.files import TraceFiles as TraceFiles
from meshcast.traced.files import find_traces as find_traces
from meshcast.traced.files import names_traces as names_traces
from meshcast.traced.prediction import predict_traces as predict_traces
