"""Files as `torch.save` writes them, without torch."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import numpy as np


class _Storage:
    """Pickled as torch pickles a storage."""

    def __init__(self, key: str, count: int) -> None:
        self.pid = ("storage", NamedOnly("torch", "LongStorage"), key, "cpu", count)


class NamedOnly:
    """Pickled as a name of a module."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


_Base: Any = vars(pickle)["_Pickler"]  # the one in Python, whose steps can be taken over


class _Pickler(_Base):  # type: ignore[misc]
    """Writes names of modules that are not here, and storages beside the pickle."""

    arrays: dict[str, Any]

    def persistent_id(self, obj: Any) -> Any:
        return obj.pid if isinstance(obj, _Storage) else None

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, NamedOnly):
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
            return
        if isinstance(obj, np.ndarray):
            key = str(len(self.arrays))
            self.arrays[key] = obj
            strides = tuple(step // obj.itemsize for step in obj.strides)
            self.save(NamedOnly("torch._utils", "_rebuild_tensor_v2"))
            self.save((_Storage(key, obj.size), 0, obj.shape, strides, False, {}))
            self.write(pickle.REDUCE)
            return
        super().save(obj, save_persistent_id)


def torch_file(value: Any) -> bytes:
    """The file of a value, its arrays as tensors."""
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=2)
    pickler.arrays = {}
    pickler.dump(value)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("batch/data.pkl", file.getvalue())
        for key, array in pickler.arrays.items():
            archive.writestr(f"batch/data/{key}", array.tobytes())
    return whole.getvalue()
