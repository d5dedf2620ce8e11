"""Simulators of others, each called as a process in a Python environment of its own."""
