"""Products and convolutions on systolic arrays: cycles, stalls and utilisation, as SCALE-Sim 3.0.0 counts them."""

from meshcast.estimate.systolic.array import ArrayBuffer as ArrayBuffer
from meshcast.estimate.systolic.array import SystolicArray as SystolicArray
from meshcast.estimate.systolic.layer import Layer as Layer
from meshcast.estimate.systolic.model import LayerResult as LayerResult
from meshcast.estimate.systolic.model import simulate as simulate
