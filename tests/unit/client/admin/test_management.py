"""Commands on their way to a manager; tests/integration/test_management.py has the rest of it."""

from __future__ import annotations

import time
from unittest.mock import MagicMock

import pytest

import roq
from roq.client.admin.management import Management
from roq.client.io.engine import Engine
from roq.errors import InvalidRequest, OtherVersion
from roq.model import endpoint_of
from roq.protocol import documents
from roq.protocol.version import FIELD, WIRE_VERSION
from roq.runtime import sockets
from roq.runtime.rpc import Peer, RpcServer

SECONDS = 20.0


@pytest.mark.parametrize("said", [{}, {FIELD: WIRE_VERSION + 1}])
def test_a_cluster_of_another_version_is_named_with_both_and_not_asked_again(
    said: dict[str, int],
) -> None:
    asked: list[bytes] = []
    engine = Engine()
    engine.start()

    def serve() -> tuple[RpcServer, str]:
        socket = sockets.router(engine.context)
        port = sockets.bind_port(socket, "127.0.0.1", 0)
        return RpcServer(engine.reactor, socket, answer), endpoint_of("127.0.0.1", port)

    def answer(peer: Peer, data: bytes) -> None:
        asked.append(data)
        number = documents.decode_raw(data)["id"]
        server.send(peer, documents.encode_raw({"kind": "other", "id": number, **said}))

    server, endpoint = engine.run_sync(serve)
    try:
        begun = time.monotonic()
        with pytest.raises(OtherVersion) as raised:
            roq.connect(endpoint, timeout=SECONDS)
        assert time.monotonic() - begun < SECONDS / 2
    finally:
        engine.run_sync(server.close)
        engine.close()
    assert f"{endpoint} speaks version {said.get(FIELD, 1)} " in str(raised.value)
    assert f"this side version {WIRE_VERSION}:" in str(raised.value)
    assert len(asked) == 1


@pytest.mark.parametrize("value", [1 << 64, "\ud800", {5: 1}, object()])
def test_what_cannot_travel_is_refused_in_a_sentence(value: object) -> None:
    management = Management(MagicMock(), ["tcp://127.0.0.1:1"])
    with pytest.raises(InvalidRequest, match="a cluster cannot be told that: "):
        management.ask({"CMD": 2010, "Host": value}, 1.0)
