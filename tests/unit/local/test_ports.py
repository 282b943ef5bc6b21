"""Ports that belong together."""

from __future__ import annotations

import socket

import pytest

from roq.errors import ConfigError
from roq.local.ports import OFFSETS, check_base, choose_base, choose_port, is_free

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


def test_a_single_port_is_free() -> None:
    assert is_free(HOST, choose_port(HOST))
