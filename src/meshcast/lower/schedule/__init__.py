"""In which order kernels are launched, and how many bytes move between the uses of a value in it."""
