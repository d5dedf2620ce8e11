"""Collections are put off inside, and are as they were outside, whatever happens."""

from __future__ import annotations

import gc

import pytest

from meshcast.base.garbage import collected_later


def test_collections_are_put_off_and_come_back() -> None:
    assert gc.isenabled()
    with collected_later(), collected_later():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_brings_them_back() -> None:
    with pytest.raises(KeyError), collected_later():
        raise KeyError
    assert gc.isenabled()


def test_who_has_none_gets_none() -> None:
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
