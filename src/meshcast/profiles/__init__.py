"""Measured kernels, from files and packages."""
