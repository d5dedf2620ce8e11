"""Ops that are left out, shared, split or replaced by simpler ones, whatever library runs them and however they lie."""
