"""Our predictions against measurements: error measures, tables, and the fit of the stated intervals."""
