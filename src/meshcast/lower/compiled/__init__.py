"""Kernels as the real compiler made them: asked for ahead of time, kept on disk, read from its scheduled HLO."""
