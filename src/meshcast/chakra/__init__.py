"""Chakra execution traces: their schema, nodes and attributes as values and as bytes, and the file of one rank."""

from meshcast.chakra.checking import checked_trace as checked_trace
from meshcast.chakra.nodes import Attribute as Attribute
from meshcast.chakra.nodes import Node as Node
from meshcast.chakra.nodes import Values as Values
from meshcast.chakra.nodes import trace_bytes as trace_bytes
from meshcast.chakra.reader import Trace as Trace
from meshcast.chakra.reader import read_trace as read_trace
from meshcast.chakra.reader import trace_of_bytes as trace_of_bytes
from meshcast.chakra.schema import GENERATIONS as GENERATIONS
from meshcast.chakra.schema import CollectiveCode as CollectiveCode
from meshcast.chakra.schema import Generation as Generation
from meshcast.chakra.schema import NodeType as NodeType
