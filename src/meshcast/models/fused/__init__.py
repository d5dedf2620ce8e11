"""Fused attention: one forward and one backward primitive, which become the call of whichever backend they are lowered for."""

from meshcast.models.fused.asked import Asked as Asked
from meshcast.models.fused.asked import why_not_fused as why_not_fused
from meshcast.models.fused.primitives import BACKENDS as BACKENDS
from meshcast.models.fused.primitives import PRIMITIVES as PRIMITIVES
from meshcast.models.fused.primitives import backward as backward
from meshcast.models.fused.primitives import forward as forward
from meshcast.models.fused.primitives import fused as fused
