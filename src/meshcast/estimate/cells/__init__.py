"""Accelerators with arrays of cells that hold weights: analogue in-memory computing, and digital arrays of the same shape."""

from meshcast.estimate.cells.energy import PARTS as PARTS
from meshcast.estimate.cells.energy import energy_by_part as energy_by_part
from meshcast.estimate.cells.estimator import CellsAnalytical as CellsAnalytical
from meshcast.estimate.cells.mapping import CellMapping as CellMapping
from meshcast.estimate.cells.mapping import mapped as mapped
