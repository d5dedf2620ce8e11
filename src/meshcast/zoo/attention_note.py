"""Where a fused attention call says what no operand's shape does: a frontend attribute, JSON with the keys below."""

ATTENTION_NOTE = "meshcast.attention"
CAUSAL, WINDOW, HEADS_FIRST, BLOCK = "causal", "window", "heads_first", "block"
