from meshcast.traces.format_names import FORMAT_NAMES as FORMAT_NAMES
from meshcast.traces.formats import write_trace as write_trace
from meshcast.traces.request import TraceRequest as TraceRequest
from meshcast.traces.request import Written as Written
from meshcast.traces.writing import trace as trace
