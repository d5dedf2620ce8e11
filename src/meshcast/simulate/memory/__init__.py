"""Peak memory: which values share a buffer, what is alive at once, and what kernels need besides."""
