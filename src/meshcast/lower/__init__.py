"""What the backend compiler makes of the graph: fusions, library calls, collectives; kernels in launch order."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
