"""Matrix products as cuBLAS and Triton take them: merged, swapped, padded, split along K, with narrow weights, or reductions."""
