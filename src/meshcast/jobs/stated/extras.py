"""What has no column of its own: `name=value` and plain words, behind each other with semicolons.

`mla:q_lora=1536,kv_lora=512;dense_layers=3;capacity_factor=1.25;dropless;cuda_graph=full-iteration;window=1024 on 5 of 6 layers`
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The items of one cell.

    Attributes:
        values: Those with a value, by name.
        words: Those without one.
        text: As it was written.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    words: frozenset[str] = frozenset()
    text: str = field(default="", compare=False)

    @classmethod
    def read(cls, text: str) -> Extras:
        """The items of a cell's text; `a,b` behind a value are words, `kind:a=1,b=2` are values of their own."""
        values: dict[str, str] = {}
        words: set[str] = set()
        for item in (item.strip() for item in text.lower().split(";")):
            inner = re.fullmatch(r"[a-z_]+:(.*=.*)", item)
            for each in inner[1].split(",") if inner else [item]:
                name, equals, value = (side.strip() for side in each.partition("="))
                if not equals:
                    words |= {name} - {""}
                    continue
                first, *more = value.split(",")
                values[name] = first
                words |= {word for word in more if "=" not in word}
                values |= dict(word.split("=", 1) for word in more if "=" in word)
        return cls(values=values, words=frozenset(words), text=text.strip())

    def whole(self, name: str) -> int | None:
        """A value that is a whole number; None where there is none."""
        text = self.values.get(name, "")
        return int(text) if text.isascii() and text.isdecimal() else None

    def number(self, name: str) -> float | None:
        """A value that is a positive number; None where there is none."""
        text = self.values.get(name, "")
        return float(text) if re.fullmatch(r"\d+(?:\.\d+)?", text) and float(text) > 0 else None

    @property
    def window(self) -> tuple[int, int] | None:
        """(positions that local layers see, in every so many layers the last is global; 0 where all are local)."""
        text = self.values.get("window", "")
        size = re.match(r"(\d+)", text)
        if not size:
            return None
        if of := re.search(r"on (\d+) of (\d+) layers", text):
            return int(size[1]), int(of[2])
        every = re.search(r"on every (\d+)(?:nd|rd|th) layer", text)
        return int(size[1]), int(every[1]) if every else 0

    @property
    def side(self) -> int | None:
        """Pixels of the side of a square picture, where that is said: `images 256x256`; the longer of two."""
        found = next((m for word in self.words if (m := re.fullmatch(r"images? (\d+)(?: ?x ?(\d+))?", word))), None)
        return max(int(found[1]), int(found[2] or 0)) if found else None

    @property
    def experts_every(self) -> int | None:
        """In every so many layers one has experts, where that is said: `moe on every 2nd layer`."""
        found = next((m for word in self.words if (m := re.fullmatch(r"moe on every (\d+)\w\w layer", word))), None)
        return int(found[1]) if found else None

    @property
    def graphs(self) -> bool:
        """Whether launches share CUDA graphs."""
        return "cuda_graph" in self.values or bool({"cuda_graphs", "cuda_graph"} & self.words)

    @property
    def whole_graph(self) -> bool:
        """Whether one CUDA graph holds a whole step."""
        said = self.values.get("cuda_graph", "") + "".join(self.words)
        return "full-iteration" in said.replace("_", "-")

    @property
    def replayed(self) -> bool:
        """Whether XLA's `hlo_runner` ran an exported program, whose arguments nobody gave values."""
        return any("hlo_runner" in word for word in self.words)
