"""`torch.autocast` inside a module: regions of lower precision, whichever device they name.

torch switches a region for CUDA off where CUDA is absent, as it is where a program is captured for a device that nobody
has. While a module is traced its tensors stand for those of the predicted device, so every region is entered as written.

Imports torch and torchax: only to be imported after `library.require_torch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from meshcast.base import UsageError
from meshcast.programs.stand_ins import standing_in

_LOWER = (torch.bfloat16, torch.float16)
_REGIONS = "_regions_while_traced"


@contextmanager
def autocast_as_written(environment: Any) -> Iterator[None]:
    """While a module is traced: see above."""

    def begin(
        self: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        # CUDA's default, which is also what a tensor's own `device.type` means: no other device is traced for.
        self.fast_dtype = dtype or (torch.bfloat16 if device_type == "cpu" else torch.get_autocast_dtype("cuda"))
        if enabled and self.fast_dtype not in _LOWER:
            raise UsageError(f"autocast to {self.fast_dtype}", fix="use torch.bfloat16 or torch.float16")
        self.device, self._enabled, self._cache_enabled = device_type, enabled, bool(cache_enabled)
        setattr(self, _REGIONS, [])

    def enter(self: Any) -> Any:
        if (
            not self._enabled
            and not hasattr(self, _REGIONS)
            and self.device == "cuda"
            and not torch.cuda.is_available()
        ):
            raise _switched_off(self.device)
        region = ExitStack()
        region.enter_context(environment.override_property(autocast_dtype=self.fast_dtype if self._enabled else None))
        self.__dict__.setdefault(_REGIONS, []).append(region)  # one object may be entered again inside itself
        return self

    def leave(self: Any, *error: Any) -> bool:
        getattr(self, _REGIONS).pop().close()
        return False

    with standing_in(torch.amp.autocast_mode.autocast, __init__=begin, __enter__=enter, __exit__=leave):
        yield


def _switched_off(device: str) -> UsageError:
    """A region that was made before tracing (a decorator): whether it was to be on cannot be told any more."""
    return UsageError(
        f"an autocast region for {device!r} was made where there is no such device, and torch has switched it off",
        fix='enter it inside forward(), or give the option "autocast"',
    )
