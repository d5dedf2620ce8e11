"""The kernels that eager PyTorch launches for each ATen call on CUDA, what they compute and how fast their code is."""
