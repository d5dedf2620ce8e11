"""Matrix products as cuBLAS and Triton take them: merged, swapped, padded, split along K, of narrow weights, or no products."""
