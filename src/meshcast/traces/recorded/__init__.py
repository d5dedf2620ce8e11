"""Traces of jobs that ran: PyTorch's host and device traces linked into Chakra's, all ranks of a job together."""
