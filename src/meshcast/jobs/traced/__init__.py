"""Traces in: Chakra execution traces of a job's ranks as a workload, replayed or timed again on other hardware."""

from meshcast.jobs.traced.files import TraceFiles as TraceFiles
from meshcast.jobs.traced.files import find_traces as find_traces
from meshcast.jobs.traced.files import names_traces as names_traces
