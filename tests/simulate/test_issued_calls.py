"""Steps issued op by op: the longer of host and device, a bounded queue, and waits; by hand."""

from __future__ import annotations

import pytest

from meshcast.base.errors import UsageError
from meshcast.options import Options
from meshcast.simulate.issued_calls import QUEUE, CallCosts, call_costs, issued_step

CALL = (0, 1, 0, 0, 0, 0, 0, 0)
WAIT = (0, 1, 0, 0, 0, 0, 0, 1)
COSTS = CallCosts(view=1, call=3, module=1, cast=1, compiled=2, library=5, parameter=1, kernel=1)


def test_the_longer_of_both_counts() -> None:
    assert issued_step([1.0] * 5, [CALL] * 5, COSTS) == pytest.approx(5 * 4)
    assert issued_step([10.0] * 5, [CALL] * 5, COSTS) == pytest.approx(5 * 10)


def test_work_is_added_up() -> None:
    work = [(2, 1, 1, 1, 0, 0, 0, 0), (0, 0, 0, 0, 1, 0, 0, 0), (0, 0, 0, 0, 0, 1, 4, 0)]
    assert issued_step([0.0] * 3, work, COSTS) == pytest.approx((1 + 2 + 3 + 1 + 1) + (1 + 2) + (1 + 5 + 4))


def test_a_wait_keeps_the_host_from_running_ahead() -> None:
    """The host prepares 4 a call; a kernel of 10 that is waited for in every step is not hidden behind the next one."""
    assert issued_step([10.0, 1.0], [CALL, CALL], COSTS) == pytest.approx(11)
    assert issued_step([10.0, 1.0], [WAIT, CALL], COSTS) == pytest.approx(4 + 10 + 1)


def test_a_stream_holds_so_many_launches() -> None:
    """A long kernel, then many short ones: the host can prepare no more of them than the queue holds meanwhile."""
    short = 3 * QUEUE
    kernels, work = [8.0 * QUEUE, *([0.0] * short)], [CALL] * (short + 1)
    host, device = 4.0 * (short + 1), 8.0 * QUEUE
    assert max(host, device) < issued_step(kernels, work, COSTS) <= host + device


@pytest.mark.parametrize(("said", "call"), [("auto", 21e-6), ("slow", 21e-6), ("fast", 7e-6), ("6.2us", 10.5e-6)])
def test_hosts(said: str, call: float) -> None:
    assert call_costs(said).call == pytest.approx(call)
    assert call_costs(said).view == pytest.approx(call * 9 / 21)
    Options(on="h200", host=said).check_choices()


@pytest.mark.parametrize("said", ["quick", "8", "0us", "-1us"])
def test_no_such_host(said: str) -> None:
    with pytest.raises(UsageError, match="no host setting"):
        Options(on="h200", host=said).check_choices()
