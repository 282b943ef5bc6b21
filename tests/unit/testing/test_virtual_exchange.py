"""One exchange, and the connections of clients to it, on a test's clock."""

from __future__ import annotations

from datetime import UTC, datetime

from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.testing.virtual_exchange import VirtualClient, VirtualExchange
from roq.testing.virtual_time import VirtualTime


def test_a_connection_is_made_again_and_what_was_on_its_way_is_lost() -> None:
    time = VirtualTime(datetime(2030, 1, 1, tzinfo=UTC), 20.0)
    client = VirtualClient(time, VirtualExchange(time), 1)
    seen: list[str] = []

    def told(answers: list[list[bytes]]) -> None:
        seen.extend(documents.decode(body, Refused).code for letter, body in answers)
        assert {letter for letter, _ in answers} == {REFUSED}

    line = client.open(
        "anywhere", on_up=lambda: seen.append("up"), on_down=lambda: seen.append("down"),
        on_answers=told,
    )  # fmt: skip
    began = time.now()
    line.ask([b"\0?", b""])  # it does not stand yet
    time.run(began)
    assert seen == ["up"]
    line.ask([b"\0?", b""])
    time.run(began)
    assert seen == ["up", "malformed"]
    line.ask([b"\0?", b""])
    client.cut(2)
    time.run(began + 1)
    client.cut(2)
    line.ask([b"\0?", b""])
    time.run(began + 2.9)
    assert seen[2:] == ["down"]
    time.run(began + 3)
    assert seen[3:] == ["up"]
    line.ask([b"\0?", b""])
    line.close([])
    time.run(began + 5)
    assert seen[4:] == [], "who has closed it hears no more"
    client.kill()
    client.call_soon(lambda: seen.append("called"))
    time.run(began + 6)
    assert seen[4:] == []
