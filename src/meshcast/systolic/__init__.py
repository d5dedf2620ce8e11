"""Products and convolutions on systolic arrays: cycles, stalls and utilisation, as SCALE-Sim 3.0.0 counts them."""

from meshcast.systolic.array import Buffer as Buffer
from meshcast.systolic.array import SystolicArray as SystolicArray
from meshcast.systolic.layer import Layer as Layer
from meshcast.systolic.model import LayerResult as LayerResult
from meshcast.systolic.model import simulate as simulate
