"""The run of one rank: streams, dependencies and overlap; peak memory by liveness."""

from meshcast.simulate.engine import KernelTimes as KernelTimes
from meshcast.simulate.engine import Simulator as Simulator
from meshcast.simulate.engine import simulate as simulate
from meshcast.simulate.memory import MemoryUse as MemoryUse
from meshcast.simulate.memory import peak_memory as peak_memory
from meshcast.simulate.network import KernelNetwork as KernelNetwork
from meshcast.simulate.timeline import Breakdown as Breakdown
from meshcast.simulate.timeline import Repeat as Repeat
from meshcast.simulate.timeline import Span as Span
from meshcast.simulate.timeline import Timeline as Timeline
