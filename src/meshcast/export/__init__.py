"""Traces out: what was predicted as files for other tools."""
