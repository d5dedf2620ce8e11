"""A step written down as the ATen calls that PyTorch makes on CUDA, with the tensors between them."""
