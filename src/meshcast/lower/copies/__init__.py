"""Copies that buffers need: targets of updates, donated and returned arguments, what loops carry; and memsets."""
