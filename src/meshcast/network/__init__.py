"""Time on the wire: how groups spread over a cluster, and collectives in closed form, as flows, and by ASTRA-sim's rules."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
