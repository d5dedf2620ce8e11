"""A valid module, damaged in many ways; the same ways for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator


def mutations(data: bytes, count: int, *, seed: int = 0) -> Iterator[bytes]:
    """So many damaged copies of a module: cut off, bytes changed, parts doubled, swapped or left out, numbers made huge."""
    draw = random.Random(seed)
    for number in range(count):
        made = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(made))
            end = min(len(made), at + draw.randrange(1, 40))
            match (number + draw.randrange(2)) % 6:
                case 0:
                    del made[at:]
                case 1:
                    made[at] = draw.randrange(256)
                case 2:
                    made[at:at] = made[at:end]
                case 3:
                    del made[at:end]
                case 4:
                    made[at:end] = bytes(draw.randrange(32, 127) for _ in range(end - at))
                case _:
                    digits = [place for place, byte in enumerate(made) if 48 <= byte <= 57]
                    place = draw.choice(digits) if digits else at
                    made[place : place + 1] = str(draw.choice((0, 7, 2**31, 2**63, 10**30))).encode()
            if not made:
                break
        yield bytes(made)
