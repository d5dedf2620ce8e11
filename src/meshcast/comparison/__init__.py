"""Side by side: targets on several devices in several fidelities, and whether the order of designs survives."""

from meshcast.comparison.agreement import Agreement as Agreement
from meshcast.comparison.agreement import Swap as Swap
from meshcast.comparison.cell import Cell as Cell
from meshcast.comparison.comparison import Comparison as Comparison
from meshcast.comparison.grid import compare as compare
