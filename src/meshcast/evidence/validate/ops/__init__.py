"""Single ops that others measured on TPUs, each made the program that was measured, and predicted: `validate ops`."""
