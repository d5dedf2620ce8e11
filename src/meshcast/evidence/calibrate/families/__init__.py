"""Families of probes: each module builds the programs of one family from settings and draws a list of them."""
