"""The run: streams, dependencies and overlap; peak memory by liveness; pipelines, classes of ranks, their collectives."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
