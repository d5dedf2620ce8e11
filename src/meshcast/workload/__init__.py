"""The op graph of one device's program, read from StableHLO: FLOPs, bytes, geometry, loops, collectives."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
