"""Steps of models written out by hand, for holding modelled kernels against the compiler's."""
