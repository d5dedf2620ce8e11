"""Parts of a GPT of 96 layers and 175 billion parameters (Brown 2020): 6 layers a part, 8-way tensor parallelism."""

from __future__ import annotations

from stages import Size, part

SIZE = Size(dim=12288, heads=96, layers=6, vocab=51200, seq=2048, microbatch=1, tensor=8)
first_forward, first_backward, first_backward_input, first_weight, first_update = part(SIZE, first=True)
middle_forward, middle_backward, middle_backward_input, middle_weight, middle_update = part(SIZE)
last_forward, last_backward, last_backward_input, last_weight, last_update = part(SIZE, last=True)
