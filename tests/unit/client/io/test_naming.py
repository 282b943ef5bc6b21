"""How a publisher calls itself, and what others accept as such a name."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from roq.client.io.naming import client_name
from roq.errors import InvalidName, RemoteProtocolError
from roq.model import CLIENT_NAME_MAX
from roq.protocol import documents
from roq.protocol.control import Alive, Attach

ATTACH = {"CMD": 3210, "id": 1, "queue_id": b"q", "publisher": b"p"}
ALIVE = {"CMD": 3214, "queue_id": b"q", "client": b"c", "role": "publisher"}


def test_by_default_it_is_the_program_the_host_and_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["/srv/bin/till.py", "--fast"])
    assert client_name(None) == f"till.py/{socket.gethostname()[:28]}:{os.getpid()}"
    for given in ([], [""], ["-c"]):
        monkeypatch.setattr(sys, "argv", given)
        assert client_name(None).startswith("python/")


def test_the_default_is_always_a_valid_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/srv/\x1b[31m" + "long" * 100])
    monkeypatch.setattr(socket, "gethostname", lambda: "host" * 60)
    assert client_name(client_name(None))


def test_a_name_has_a_length_and_can_be_shown() -> None:
    assert client_name("till 7, Köln") == "till 7, Köln"
    for bad in ("", "x" * (CLIENT_NAME_MAX + 1), "two\nlines", "\x1b[31mred", "a\u202eb"):
        with pytest.raises(InvalidName, match="no name for a client"):
            client_name(bad)
    with pytest.raises(TypeError):
        client_name(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fields", "kind"), [(ATTACH, Attach), (ALIVE, Alive)])
def test_a_monitor_takes_only_such_a_name_and_needs_none(
    fields: dict[str, object], kind: type[Attach | Alive]
) -> None:
    def read(**more: object) -> str:
        return documents.decode(documents.encode_raw({**fields, **more}), kind).name

    assert read() == ""
    assert read(name="till-7") == "till-7"
    assert len(read(name="ü" * CLIENT_NAME_MAX)) == CLIENT_NAME_MAX
    for bad in ("x" * (CLIENT_NAME_MAX + 1), "line\n", "\x1b[31m", "a\u202eb", 7):
        with pytest.raises(RemoteProtocolError):
            read(name=bad)
