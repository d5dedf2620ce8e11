"""Time on the wire: how groups spread over a cluster, and collectives in closed form."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
