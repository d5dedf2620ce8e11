"""Convolutions as cuDNN takes them on GPUs, and how their images lie on TPUs."""
