"""The kernels that `torch.compile` makes of a recorded step: what is kept, what is computed again, what is fused."""
