"""Chakra execution traces as bytes: nodes, their attributes, and the file of one rank."""

from meshcast.chakra.nodes import CollectiveCode as CollectiveCode
from meshcast.chakra.nodes import Node as Node
from meshcast.chakra.nodes import NodeType as NodeType
from meshcast.chakra.nodes import trace_bytes as trace_bytes
