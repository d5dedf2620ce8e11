"""The caching allocator's worst moment, as `torch.cuda.max_memory_allocated` tells it; free of torch.

Blocks are rounded up to 512 bytes (`c10/cuda/CUDACachingAllocator.cpp`). A storage is held from the call that makes it until
its last reference is gone: in eager mode that is known of every one of them. cuBLAS has a workspace of 32 MiB on Hopper for
every thread that calls it: the one that runs the model, and autograd's (`ATen/cuda/CublasHandlePool.cpp`). A product with a bias
goes by cuBLASLt, which has 1 MiB (`ATen/cuda/CUDABlas.cpp`): narrow models measured are that, and not 32 MiB more, above those
without biases. cuDNN turns images in a workspace of its own, which is the allocator's for the time of the call
(`ATen/native/cudnn/Conv_v8.cpp`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshcast.programs.pytorch.eager.libraries import turned_bytes
from meshcast.programs.pytorch.recording.calls import AtenOp, Recording

Event = tuple[Sequence[int], Sequence[int], int]  # storages given back, storages made, bytes of the call alone
BLOCK = 512
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "_grouped_mm")
WORKSPACE = 32 << 20  # of cuBLAS
BIASED_WORKSPACE = 1 << 20  # of cuBLASLt


def rounded(size: int) -> int:
    """A request as the allocator serves it."""
    return -(-size // BLOCK) * BLOCK


def eager_peak(recording: Recording) -> dict[str, int]:
    """Bytes of arguments, and of everything else at the worst moment."""
    held = {storage: rounded(recording.sizes[storage]) for storage in recording.held}
    arguments = sum(held.values())
    events: list[Event] = []
    seen = set(held)
    for op in recording.ops:
        made = [each.storage for each in op.gives if each.storage not in seen and not seen.add(each.storage)]  # type: ignore[func-returns-value]
        events.append((op.frees, made, call_workspace(op)))
    most = worst(events, recording.sizes, ignored=held)
    return told(arguments, most + cublas_workspaces(recording))


def cublas_workspaces(recording: Recording) -> int:
    """Bytes of cuBLAS's workspaces: one of each thread that multiplies matrices; convolutions are cuDNN's alone (SqueezeNet)."""
    threads = {op.phase == "backward" for op in recording.ops if op.name in _PRODUCTS}
    return len(threads) * WORKSPACE


def call_workspace(op: AtenOp) -> int:
    """Bytes that a call takes besides its results, and gives back."""
    if op.name in ("convolution", "convolution_backward"):
        return rounded(turned_bytes(op))
    return BIASED_WORKSPACE if op.name == "addmm" else 0


def worst(events: Iterable[Event], sizes: object, *, ignored: object) -> int:
    """The most bytes at once: of each event first what is given back, then what is taken, then what only its call has."""
    live: dict[int, int] = {}
    now = most = 0
    for freed, made, besides in events:
        for storage in freed:
            now -= live.pop(storage, 0)
        for storage in made:
            if storage in ignored or storage in live:  # type: ignore[operator]
                continue
            live[storage] = rounded(sizes[storage])  # type: ignore[index]
            now += live[storage]
        most = max(most, now + besides)
    return most


def told(arguments: int, temporaries: int) -> dict[str, int]:
    """As a compiler's buffer assignment is told."""
    return {"arguments": arguments, "outputs": 0, "temporaries": temporaries, "aliased": 0}
