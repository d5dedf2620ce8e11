"""Configurations and published sizes of the zoo: numbers alone, so that listing them imports no jax."""
