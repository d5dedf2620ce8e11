"""Measured profiles: the file that `meshcast calibrate --profile` writes, and its reader."""
