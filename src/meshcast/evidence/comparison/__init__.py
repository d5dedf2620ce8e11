"""Side by side: targets on several devices in several fidelities, and whether the order of designs survives."""

from meshcast.evidence.comparison.agreement import Agreement as Agreement
from meshcast.evidence.comparison.agreement import Swap as Swap
from meshcast.evidence.comparison.cell import Cell as Cell
from meshcast.evidence.comparison.comparison import Comparison as Comparison
from meshcast.evidence.comparison.grid import compare as compare
