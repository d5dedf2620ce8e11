"""Files of torch (`torch.save`) without torch: zip archives with a pickle that names raw arrays.

Nothing in the pickle is called but tensors' makers.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

_STORAGES = {
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}


def saved_tensors(content: bytes) -> Any:
    """What a file of torch holds, its tensors as arrays.

    Raises:
        ValueError, KeyError, EOFError, zipfile.BadZipFile, pickle.UnpicklingError: It is no such file, or holds something else.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = {name.split("/", 1)[-1]: name for name in archive.namelist()}
        return _Unpickler(
            io.BytesIO(archive.read(names["data.pkl"])), lambda key: archive.read(names[f"data/{key}"])
        ).load()


def _rebuilt(storage: npt.NDArray[Any], offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> Any:
    """A tensor as torch describes one: `torch._utils._rebuild_tensor_v2`."""
    count = int(np.prod(size)) if size else 1
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if count else offset
    if count and not 0 <= offset <= last < len(storage):
        raise ValueError("a tensor reaches beyond its storage")
    strides = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], shape=tuple(size), strides=strides, writeable=False)


class _Storage:
    """The name of a kind of storage."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Unpickler(pickle.Unpickler):
    """Reads tensors and the containers around them; whatever else a pickle asks for is refused."""

    def __init__(self, file: io.BytesIO, stored: Callable[[str], bytes]) -> None:
        super().__init__(file)
        self.stored = stored

    def find_class(self, module: str, name: str) -> Any:
        """What a pickle may name."""
        if module == "torch" and name in _STORAGES:
            return _Storage(name)
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuilt
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """A storage: ("storage", kind, key, where it was, elements)."""
        _, kind, key, _, _ = pid
        return np.frombuffer(self.stored(str(key)), dtype=_STORAGES[kind.name])
