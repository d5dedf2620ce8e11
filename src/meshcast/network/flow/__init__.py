"""Collectives as flows that share the links of a fabric fairly: when several run at once, and how long each takes."""

from meshcast.network.flow.phase import FlowPhase as FlowPhase
from meshcast.network.flow.phase import phases_of as phases_of
from meshcast.network.flow.sharing import shared_paces as shared_paces
from meshcast.network.flow.simulation import FlowJob as FlowJob
from meshcast.network.flow.simulation import FlowResult as FlowResult
from meshcast.network.flow.simulation import JobTime as JobTime
from meshcast.network.flow.simulation import LevelUse as LevelUse
from meshcast.network.flow.simulation import SharedFabric as SharedFabric
from meshcast.network.flow.simulation import simulate_flows as simulate_flows
from meshcast.network.flow.traffic import FlowTraffic as FlowTraffic
