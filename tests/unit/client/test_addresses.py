"""Addresses as people write them."""

from __future__ import annotations

import pytest

from roq.client.addresses import parse_addresses
from roq.errors import InvalidRequest


@pytest.mark.parametrize(
    ("given", "endpoints"),
    [
        ("127.0.0.1:5000", ["tcp://127.0.0.1:5000"]),
        ("localhost", ["tcp://localhost:5000"]),
        ("tcp://a.b:7", ["tcp://a.b:7"]),
        ("[::1]:6000", ["tcp://[::1]:6000"]),
        ("[::1]", ["tcp://[::1]:5000"]),
        ("::1", ["tcp://[::1]:5000"]),
        ("a:1, b:2,,", ["tcp://a:1", "tcp://b:2"]),
        (["a:1", "b:2", "a:1"], ["tcp://a:1", "tcp://b:2"]),
    ],
)
def test_the_usual_forms_are_understood(given: str | list[str], endpoints: list[str]) -> None:
    assert parse_addresses(given) == endpoints


@pytest.mark.parametrize(
    "given", ["", [], ",", "a:b", "a:0", "a:65536", "[::1", "[::1]x", ":5000", "a b:1", "ipc:///x"]
)
def test_anything_else_is_refused(given: str | list[str]) -> None:
    with pytest.raises(InvalidRequest):
        parse_addresses(given)
