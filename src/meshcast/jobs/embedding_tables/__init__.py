"""Embedding tables of recommenders: files of them, where indices fall, kernels by traffic, shardings and a planner."""
