"""Launches of either, each with its tensors and its host's work, written as a scheduled StableHLO program."""
