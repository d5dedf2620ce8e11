"""Collectives by what traces say of them: the profiler's arguments, the execution trace's, the kernel's name."""

from __future__ import annotations

from typing import Any

import pytest

from meshcast.chakra import CollectiveCode
from meshcast.traces.recorded.collectives import Exchange, code_of, exchange_of, of_kernel, of_profiler
from meshcast.traces.recorded.operators import Operator

NAMES = {
    "allreduce_coalesced": CollectiveCode.ALL_REDUCE, "_allgather_base": CollectiveCode.ALL_GATHER,
    "all_to_allv": CollectiveCode.ALL_TO_ALL, "reduce_scatter_tensor_coalesced": CollectiveCode.REDUCE_SCATTER,
    "_reduce_oop": CollectiveCode.REDUCE, "gather": CollectiveCode.GATHER, "scatter": CollectiveCode.SCATTER,
    "barrier": CollectiveCode.BARRIER, "broadcast_oop": CollectiveCode.BROADCAST, "wait": None,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    assert code_of(name) is NAMES[name]


def test_kernels_by_their_names() -> None:
    assert of_kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL") == Exchange(code=CollectiveCode.REDUCE_SCATTER)
    assert of_kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)") is None


def test_what_the_profiler_says() -> None:
    said: dict[str, Any] = {
        "Collective name": "_allgather_base", "In msg nelems": 10, "Out msg nelems": 40, "Group size": 4, "dtype": "BFloat16",
        "Process Group Name": "3", "Process Group Ranks": "[1, 3, 5, 7]",
    }  # fmt: skip
    expected = Exchange(code=CollectiveCode.ALL_GATHER, size=20, group="3", members=(1, 3, 5, 7), group_size=4)
    assert of_profiler(said) == expected
    short = of_profiler({**said, "Process Group Ranks": "[0, 1, ...]"})
    assert short is not None
    assert short.members == ()
    scattered = of_profiler({**said, "Collective name": "scatter", "In msg nelems": 0, "Out msg nelems": 10})
    assert scattered is not None
    assert scattered.size == 4 * 20, "a rank that is given a part knows the whole"


def test_messages_of_an_execution_trace() -> None:
    tensor = [1, 2, 0, 100, 2, "cuda:0"]
    operator = Operator(
        number=1, name="record_param_comms", parent=0, record=1, thread=1, types=["Tensor(c10::Half)"],
        values=[tensor, 5, ["2", "pipeline"], 3, "send", [], []], said={"dst_rank": 3, "pg_name": "2"},
    )  # fmt: skip
    assert exchange_of(operator) == Exchange(code=None, sends=True, size=200, group="2", peer=3)
