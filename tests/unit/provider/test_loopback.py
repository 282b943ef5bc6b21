"""Loopback addresses for hosts."""

import socket

import pytest

from roq.errors import NoMoreHosts
from roq.provider.loopback import Addresses, listening


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_an_address_where_somebody_listens_is_known(family: socket.AddressFamily) -> None:
    if family == socket.AF_INET6 and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    address = "127.9.9.1"
    with socket.socket(family) as server:
        server.bind((address if family == socket.AF_INET else f"::ffff:{address}", 0))
        assert address not in listening()
        server.listen()
        assert address in listening()
        assert Addresses(address, "127.9.9.2").choose(()) == "127.9.9.2"
    assert address not in listening()


def test_the_first_free_address_is_chosen() -> None:
    addresses = Addresses("127.9.8.254", "127.9.9.1")
    assert addresses.choose({"127.9.8.254"}) == "127.9.8.255"
    assert addresses.choose({"127.9.8.254", "127.9.8.255", "127.9.9.0"}) == "127.9.9.1"


def test_when_all_are_taken_the_error_says_what_to_do() -> None:
    with pytest.raises(NoMoreHosts, match="first_address and last_address"):
        Addresses("127.9.9.1", "127.9.9.1").choose(["127.9.9.1"])


@pytest.mark.parametrize(
    ("first", "last"),
    [("10.0.0.1", "127.0.0.9"), ("127.0.0.9", "127.0.0.2"), ("", "127.0.0.1"), ("::1", "::1"),
     ("127.0.0.2", "128.0.0.1")],
)  # fmt: skip
def test_a_range_that_is_none_is_refused(first: str, last: str) -> None:
    with pytest.raises(ValueError, match=r"127|first_address"):
        Addresses(first, last)
