"""A module traced by JAX: its calls on tracers, autocast, parallel wrappers, training step; programs that XLA compiles."""
