"""Parts of a GPT that is small enough to look at: 2 layers a part, 2-way tensor parallelism."""

from __future__ import annotations

from stages import Size, part

SIZE = Size(dim=256, heads=8, layers=2, vocab=1024, seq=128, microbatch=2, tensor=2)
first_forward, first_backward, first_backward_input, first_weight, first_update = part(SIZE, first=True)
middle_forward, middle_backward, middle_backward_input, middle_weight, middle_update = part(SIZE)
last_forward, last_backward, last_backward_input, last_weight, last_update = part(SIZE, last=True)
