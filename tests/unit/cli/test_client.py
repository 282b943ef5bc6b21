"""Addresses of clusters on the command line."""

from __future__ import annotations

import socket

import click
import pytest

from roq.cli.client import check_addresses, explained


def test_several_addresses_stand_behind_each_other() -> None:
    assert check_addresses("a:1, tcp://b:2,[::1]:3") == "a:1, tcp://b:2,[::1]:3"


@pytest.mark.parametrize("text", ["", " ", ":5", "a:x", "a:0", "a:65536", "a:1,b/c"])
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.UsageError, match="--cluster"):
        check_addresses(text)


def test_what_is_at_the_address_is_said_in_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    text = f"no configuration manager answers at tcp://{address}. Is the cluster up?"
    told = explained(text, address)
    assert told == (
        f"no configuration manager answers at tcp://{address}: nothing listens at {address}"
    )
