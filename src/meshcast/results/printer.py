"""Predictions for people: one number first, then its parts."""
