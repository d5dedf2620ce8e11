"""How far off the time of a collective may be: both ends of its interval are `time * factor^±1 ± start`."""

from __future__ import annotations

# Of 190 published collectives, alone on well-tuned machines, 97 % took between a time of the closed form divided by this
# factor and one multiplied by it, give or take this start (docs/accuracy-collectives.md).
NETWORK_FACTOR, NETWORK_START_S = 1.3, 5e-6
