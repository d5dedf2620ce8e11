"""Measured kernels: the file that `meshcast calibrate --profile` writes, and the silicon tables of a package."""
