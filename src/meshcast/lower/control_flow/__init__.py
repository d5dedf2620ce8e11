"""Loops and branches of a block, before its ops are looked at: those of one turn, simple sides, counters, constants."""
