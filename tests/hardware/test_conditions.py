"""What breaks symmetry, from the command line's texts."""

from __future__ import annotations

import pytest

from meshcast.base.errors import UsageError
from meshcast.hardware import HEALTHY, Conditions, LinkCondition, check_conditions, load_cluster, parse_conditions


def test_nothing_said_is_healthy() -> None:
    assert parse_conditions() == HEALTHY
    assert HEALTHY.healthy


def test_texts_become_conditions() -> None:
    found = parse_conditions(
        slow=["3=0.5", "8-9=1.1"], links=["ici=0.9", "nvlink:4=0", "nvlink:5x2=0.5"], background=["infiniband=0.3"]
    )
    assert found == Conditions(
        speed={3: 0.5, 8: 1.1, 9: 1.1},
        links=(
            LinkCondition(level="ici", share=0.9),
            LinkCondition(level="nvlink", device=4, share=0.0),
            LinkCondition(level="nvlink", device=5, share=0.5, links=2),
        ),
        background={"infiniband": 0.3},
    )
    assert not found.healthy


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"slow": ["3"]}, "not DEVICE=SHARE"),
        ({"slow": ["3=nan"]}, "not DEVICE=SHARE"),
        ({"slow": ["9-8=0.5"]}, "ends before it begins"),
        ({"slow": ["a-8=0.5"]}, "no device and no range of devices"),
        ({"slow": ["3=0.5", "2-4=0.6"]}, "device 3 is given twice"),
        ({"links": ["nvlink:x=0.5"]}, "not LEVEL"),
        ({"links": ["nvlink:1x0=0.5"]}, "not LEVEL"),
        ({"background": ["ib=0.1", "ib=0.2"]}, "given twice"),
    ],
)
def test_bad_texts_say_what_to_write(given: dict[str, list[str]], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_conditions(**given)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (Conditions(speed={8: 0.5}), "no device 8 among 8"),
        (Conditions(speed={1: 0.0}), "is not from 0.001 to 1000"),
        (Conditions(links=(LinkCondition(level="nvlnk", share=0.5),)), "no such level"),
        (Conditions(links=(LinkCondition(level="nvlink", share=1.5),)), "share of 1.5"),
        (Conditions(links=(LinkCondition(level="nvlink", share=0.5, links=19),)), "19 links"),
        (Conditions(background={"nvlink": 1.0}), "share of 1"),
    ],
)
def test_conditions_name_parts_of_the_cluster(conditions: Conditions, words: str) -> None:
    cluster = load_cluster("dgx-h100").for_devices(8)
    with pytest.raises(UsageError, match=words) as caught:
        check_conditions(conditions, cluster, 8)
    assert caught.value.fix
