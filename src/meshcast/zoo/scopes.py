"""Names in the locations of ops by which later passes know what the models mean; importing it imports no jax."""

ALIKE_SCOPE = "alike_on_"
"""With the number of devices: all of them compute the same."""
COPIES_SCOPE = "copies_"
"""With their number: an exchange sends a row once for each of its destinations, a token for each of its experts."""
