"""Fused attention: one forward and one backward primitive, which become the call of whichever backend they are lowered for."""

from meshcast.zoo.fused_attention.asked import AttentionCall as AttentionCall
from meshcast.zoo.fused_attention.asked import why_not_fused as why_not_fused
from meshcast.zoo.fused_attention.primitives import BACKENDS as BACKENDS
from meshcast.zoo.fused_attention.primitives import PRIMITIVES as PRIMITIVES
from meshcast.zoo.fused_attention.primitives import backward as backward
from meshcast.zoo.fused_attention.primitives import forward as forward
from meshcast.zoo.fused_attention.primitives import fused_call as fused_call
