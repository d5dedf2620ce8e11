"""Measuring a device: a suite of small JAX programs, run on whatever backend is there, and the file of their times.

`python -m meshcast.evidence.calibrate OUT` needs jax alone; `meshcast calibrate --profile` is the same with our own kernels
beside each row.
"""
