"""Ports that belong together."""

from __future__ import annotations

import socket

import pytest

from roq.errors import ConfigError
from roq.local.ports import OFFSETS, bases, check_base, choose_base, choose_ports, is_free

HOST = "127.0.0.1"


def test_a_chosen_base_has_free_neighbours() -> None:
    base = choose_base(HOST)
    assert all(is_free(HOST, base + offset) for offset in OFFSETS.values())
    assert check_base(HOST, base) == base


@pytest.mark.parametrize("interface", list(OFFSETS))
def test_a_port_in_use_is_named_with_its_interface(interface: str) -> None:
    base = choose_base(HOST)
    with socket.socket() as taken:
        taken.bind((HOST, base + OFFSETS[interface]))
        taken.listen()
        with pytest.raises(ConfigError, match=f"port {base + OFFSETS[interface]} .*{interface}"):
            check_base(HOST, base)


def test_a_base_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="out of range"):
        check_base(HOST, 65_535)


def test_the_ports_of_every_manager_are_looked_at() -> None:
    base = choose_base(HOST, 2)
    with socket.socket() as taken:
        taken.bind((HOST, bases(base, 2)[1]))
        taken.listen()
        assert check_base(HOST, base) == base
        with pytest.raises(ConfigError, match=f"port {base + 10} "):
            check_base(HOST, base, 2)


def test_single_ports_are_free_and_different() -> None:
    ports = choose_ports(HOST, 15)
    assert len(set(ports)) == 15
    assert all(is_free(HOST, port) for port in ports)


def test_ports_that_somebody_else_will_have_are_left_alone() -> None:
    first = choose_ports(HOST, 3)
    assert not set(first) & set(choose_ports(HOST, 3, avoid=first))
