"""A package's door: the names that other packages may import, each loaded on first use.

A door is a stub file, `__init__.pyi`, with one line a name: `from meshcast.lower.fusion.rules import Fusion as Fusion`. Type
checkers and editors read it as they read any stub; `door` reads the same lines when the program runs, so that a package
costs nothing until something of it is asked for (`meshcast --help` must not pay for jaxlib), and modules behind two doors
may need each other.

A name that the next release drops has its line still, with a comment that says what to write instead: `# old name: ...`. Using
it is a `DeprecationWarning`, and neither `__all__` nor completion shows it.
"""

from __future__ import annotations

# Nothing else is imported: `python -m meshcast` comes here before it has left the current folder, which may hold a `re.py`.
import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OLD_NAME = "old name: "  # begins the comment behind a name that is going to be dropped; what to write instead follows


def door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package with an `__init__.pyi`.

    Args:
        package: Its name, as `__name__` has it in its `__init__.py`.
    """
    module = sys.modules[package]
    assert module.__file__ is not None
    places = _places(module.__file__ + "i")

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original, instead = places[name]
        value = getattr(importlib.import_module(home), original)
        if instead:
            import warnings

            warnings.warn(f"{package}.{name} is an old name: {instead}", DeprecationWarning, stacklevel=2)
        else:
            setattr(module, name, value)  # the next use does not come here
        return value

    current = [name for name, (_, _, instead) in places.items() if not instead]

    def names() -> list[str]:
        return sorted({*current, *(name for name in vars(module) if name.startswith("__"))})

    return load, names, list(current)


def _places(stub: str) -> dict[str, tuple[str, str, str]]:
    """Module, name there, and of old names what to write instead, by the name at the door.

    A stub's other lines concern type checkers alone.
    """
    found = {}
    with open(stub, encoding="utf-8") as lines:
        for line in lines:
            code, _, comment = line.partition("#")
            words = code.split()
            if len(words) == 6 and (words[0], words[2], words[4]) == ("from", "import", "as"):
                instead = comment.strip().removeprefix(OLD_NAME) if comment.strip().startswith(OLD_NAME) else ""
                found[words[5]] = (words[1], words[3], instead)
    return found
