"""Collective algorithms in closed form, one family a module; each gives a plan, or None where it does not apply."""

from meshcast.network.algorithms.families import FAMILIES as FAMILIES
from meshcast.network.algorithms.families import AlgorithmFamily as AlgorithmFamily
