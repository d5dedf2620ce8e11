"""Which ops become one kernel: XLA:GPU's priority queue with its cost model, XLA:TPU's rules, a framework's."""
