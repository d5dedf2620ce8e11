"""Predictions beside other answers: profiles of real runs, other fidelities, measurements; and what is calibrated on them."""

from meshcast.base import door

__getattr__, __dir__, __all__ = door(__name__)
