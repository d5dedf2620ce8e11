"""Fabrics as graphs: devices, switches and links, built from a cluster's levels or read from a user's own file."""

from meshcast.network.fabric.fabric import Fabric as Fabric
from meshcast.network.fabric.fabric import fabric_of as fabric_of
from meshcast.network.fabric.graph_file import GraphFile as GraphFile
from meshcast.network.fabric.graph_file import read_fabric as read_fabric
from meshcast.network.fabric.wiring import Routing as Routing
