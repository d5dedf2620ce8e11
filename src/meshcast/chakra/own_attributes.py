"""Attributes of our own beside Chakra's: what writes them and what reads them agree on their names here.

Nodes say what a kernel does by its number in a list that the file's metadata holds, so that equal kernels are written once.
"""

from __future__ import annotations

KERNELS = "kernels"  # of the metadata: everything the cost of a kernel depends on, as texts of JSON
KERNEL = "kernel"  # of a node: its place in that list, counted from 0
