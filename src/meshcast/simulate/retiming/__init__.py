"""A step again with other times: one along the tape of an earlier one, or many points of a sweep at once."""
