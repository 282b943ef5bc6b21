"""Addresses of clusters on the command line."""

from __future__ import annotations

import click
import pytest

from roq.cli.client import parse_addresses


def test_several_addresses_stand_behind_each_other() -> None:
    assert parse_addresses("a:1, tcp://b:2,[::1]:3") == ("a:1", "b:2", "[::1]:3")


@pytest.mark.parametrize("text", ["", " ", "a", "a:", ":5", "a:x", "a:0", "a:65536", "a:1,b"])
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.UsageError, match="HOST:PORT"):
        parse_addresses(text)
