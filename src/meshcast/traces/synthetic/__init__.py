"""Workload graphs that nobody has written: a model of our own graphs, grown layer by layer, and traces of what it makes."""
