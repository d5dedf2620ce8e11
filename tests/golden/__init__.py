"""Golden answers: what the command line says over a grid of questions, kept, and compared bit by bit (docs/golden.md)."""
