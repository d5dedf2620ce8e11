"""Which collective a kernel of a communication library is: what the profiler says, what the execution trace says, its name last.

`record_param_comms` is given the tensors, a number, the process group (its name and description; in older traces its address), a
rank, the collective's name and the splits of an all-to-all (torch/csrc/distributed/c10d/ParamCommsUtils.hpp). The name of NCCL's
kernel tells less: an all-to-all, a gather and a scatter all run as `SendRecv`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshcast.chakra import CollectiveCode
from meshcast.traces.recorded.operators import Operator

SEND, RECEIVE, WAIT = "send", "recv", "wait"
COMMUNICATION_KERNEL = re.compile(r"nccl(Dev)?Kernel|rccl|ncclSymk|nvshmem", re.IGNORECASE)
# In this order: `reduce_scatter` is none of `reduce` nor of `scatter`.
_KINDS = (
    ("reducescatter", CollectiveCode.REDUCE_SCATTER), ("allreduce", CollectiveCode.ALL_REDUCE),
    ("allgather", CollectiveCode.ALL_GATHER), ("alltoall", CollectiveCode.ALL_TO_ALL),
    ("broadcast", CollectiveCode.BROADCAST), ("barrier", CollectiveCode.BARRIER), ("scatter", CollectiveCode.SCATTER),
    ("gather", CollectiveCode.GATHER), ("reduce", CollectiveCode.REDUCE),
)  # fmt: skip
_BYTES = {
    "double": 8, "long": 8, "int64": 8, "complexfloat": 8, "float64": 8, "complexdouble": 16, "float": 4, "float32": 4,
    "int": 4, "int32": 4, "half": 2, "bfloat16": 2, "short": 2, "int16": 2, "float16": 2, "char": 1, "byte": 1, "bool": 1,
    "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A collective or a message of one rank.

    Attributes:
        code: The collective; None of a message.
        sends: Of a message, whether it is sent.
        size: Bytes as ASTRA-sim counts them: what the rank puts in, of a scatter what its root does.
        group: What the trace calls its process group; "" where it does not say.
        members: Ranks of the group, where the trace lists them; `group_size` how many there are, 0 where it does not say.
        peer: The other rank of a message, -1 where it is not known.
    """

    code: CollectiveCode | None
    sends: bool = False
    size: int = 0
    group: str = ""
    members: tuple[int, ...] = ()
    group_size: int = 0
    peer: int = -1


def code_of(name: str) -> CollectiveCode | None:
    """The collective that a name is of; None where it is of none."""
    plain = re.sub(r"[_\-\s]", "", name).lower()
    return next((code for text, code in _KINDS if text in plain), None)


def of_profiler(said: Mapping[str, Any]) -> Exchange | None:
    """What the arguments of a kernel or of `record_param_comms` in a profile say; None where they name no collective."""
    name = str(said.get("Collective name", ""))
    each = _BYTES.get(str(said.get("dtype", "")).lower().removeprefix("c10::"), 0)
    taken, given = (_count(said.get(key)) for key in ("In msg nelems", "Out msg nelems"))
    return _made(
        name, each * taken, each * given, group=str(said.get("Process Group Name", "")),
        members=_ranks(said.get("Process Group Ranks")), group_size=_count(said.get("Group size")),
        peer=_count(said.get("Dst Rank" if SEND in name else "Src Rank"), missing=-1),
    )  # fmt: skip


def exchange_of(operator: Operator) -> Exchange | None:
    """What a `record_param_comms` of an execution trace says; None where it names no collective."""
    told = operator.said
    texts = [value for value in operator.values if isinstance(value, str)]
    name = str(told.get("collective_name") or next((text for text in texts if _named(text)), ""))
    group = str(told.get("pg_name", ""))
    if not group:
        pairs = [value for value in operator.values if isinstance(value, list) and _is_texts(value)]
        numbers = [value for value in operator.values if type(value) is int]
        group = str(pairs[0][0]) if pairs else str(numbers[1]) if len(numbers) > 1 else ""
    numbers = [value for value in operator.values if type(value) is int]
    peer = int(told.get("dst_rank" if SEND in name else "src_rank", numbers[-1] if numbers else -1))
    return _made(
        name, tensor_bytes(operator.values, operator.types), tensor_bytes(operator.out_values, operator.out_types),
        group=group, members=_ranks(told.get("pg_ranks")), group_size=_count(told.get("group_size")), peer=peer,
    )  # fmt: skip


def of_kernel(name: str) -> Exchange | None:
    """What the name of a kernel or an annotation says; a `SendRecv` may be anything."""
    code = code_of(name)
    return None if code is None else Exchange(code=code)


def _made(
    name: str, taken: int, given: int, *, group: str, members: tuple[int, ...], group_size: int, peer: int
) -> Exchange | None:
    plain = name.lower()
    if plain in (SEND, RECEIVE):
        size = taken or given
        return Exchange(
            code=None, sends=plain == SEND, size=size, group=group, members=members, group_size=group_size, peer=peer
        )
    code = code_of(name)
    if code is None:
        return None
    # A rank that only receives (of a broadcast, scatter) has nothing to put in: what comes out says how much it was.
    size = taken
    if code is CollectiveCode.SCATTER:
        size = max(taken, given * max(1, group_size or len(members)))
    elif not size:
        size = given
    return Exchange(code=code, size=size, group=group, members=members, group_size=group_size)


def tensor_bytes(values: Sequence[Any], types: Sequence[Any]) -> int:
    """Bytes of the tensors among values, in lists too."""
    return sum(
        math.prod(tensor[3:5])
        for value, kind in zip(values, types, strict=False)
        for tensor in _tensors(value, str(kind))
    )


def _tensors(value: Any, kind: str) -> list[list[Any]]:
    if "Tensor" not in kind or not isinstance(value, list):
        return []
    if kind.startswith(("GenericList", "Tuple")):
        return [each for each in value if isinstance(each, list) and len(each) >= 6]
    return [value] if len(value) >= 6 else []


def _named(text: str) -> bool:
    return text in (SEND, RECEIVE) or code_of(text) is not None


def _is_texts(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(each, str) for each in value)


def _count(value: object, *, missing: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else missing


def _ranks(value: object) -> tuple[int, ...]:
    """Ranks of a group, from a list or its text; none where the text leaves some out (`[0, 1, ...]`)."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        return ()
    return tuple(value)
