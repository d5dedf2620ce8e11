"""What every rank of a job does in a step, node by node; equal ranks once. Traces are written from it, and it can be replayed."""
