from meshcast.traces.format_names import FORMAT_NAMES as FORMAT_NAMES
from meshcast.traces.formats import TraceRequest as TraceRequest
from meshcast.traces.formats import Written as Written
from meshcast.traces.formats import write_trace as write_trace
from meshcast.traces.writing import trace as trace
