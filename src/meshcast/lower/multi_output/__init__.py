"""Kernels that become one launch with several results, since they read the same or one the other's result."""
