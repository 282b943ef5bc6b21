"""A flight is flown again, and told; what of it makes no sense is refused, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hcm_host import Host
from monitor_driver import Driver
from recorded import data_of, flights_of, recorded

from roq.cli.replay import BYTES_SHOWN, TEXT_MAX, Difference, replay, story, told, wanted
from roq.errors import RemoteProtocolError
from roq.monitor import machine as monitors
from roq.runtime.flight import MAGIC, Flight, Record, decode, encode
from roq.runtime.rpc_connections import NotReached


@pytest.fixture(scope="module")
def data() -> bytes:
    """The flight of a monitor, as a file."""
    with recorded() as recorders:
        monitor = Driver()
        monitor.report(1)
        monitor.attach("p")
        monitor.advance(1.0)
    return data_of(recorders)


def changed(data: bytes, how: Callable[[Any], object]) -> Flight:
    """Somebody has written another thing into the file."""
    flights = msgspec.msgpack.decode(data[len(MAGIC) :])
    how(flights[0])
    (flight,) = decode(MAGIC + msgspec.msgpack.encode(flights))
    return flight


def unchanged(data: bytes) -> Flight:
    return changed(data, lambda _: None)


def differs(data: bytes, how: Callable[[Any], object]) -> Difference:
    found = replay(changed(data, how))
    assert found is not None
    return found


def test_an_effect_that_is_missing_or_an_error_is_a_difference(data: bytes) -> None:
    found = differs(data, lambda flight: flight[2][0][3].clear())
    assert (found.number, found.recorded) == (0, [])
    assert found.replayed[0].startswith("Send peer=")
    found = differs(data, lambda flight: flight[2][1].__setitem__(4, "ValueError: 7"))
    assert (found.number, found.recorded[-1]) == (1, "raises ValueError: 7")
    assert replay(unchanged(data)) is None


def test_an_amount_is_the_same_whole_and_as_a_fraction(data: bytes) -> None:
    def fraction(flight: Any) -> None:
        message = flight[2][0][3][0][1]["message"]
        message["epoch"] = float(message["epoch"])

    assert replay(changed(data, fraction)) is None


def test_another_name_of_an_effect_is_a_difference(data: bytes) -> None:
    found = differs(data, lambda flight: flight[2][0][3][0].__setitem__(0, "Sent"))
    assert found.recorded[0].startswith("Sent ")


def test_an_error_that_the_machine_raises_is_compared_like_an_effect(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> list[object]:
        raise ValueError("7")

    monkeypatch.setattr(monitors.MonitorMachine, "handle", broken)
    found = replay(unchanged(data))
    assert found is not None
    assert found.replayed == ["raises ValueError: 7"]


def test_events_that_carry_errors_are_flown_again() -> None:
    """As one that says that a leader was not reached."""
    with recorded() as recorders:
        host = Host(share=3)
        host.running("a.x1")
        host.leader(NotReached("no answer"))
        host.advance(3.0)
    (flight,) = flights_of(recorders)
    assert any('"error":' in line for line in story(flight))
    assert replay(flight) is None


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (lambda flight: flight[0].update(roq="0.0.9"), "a flight of RoQ 0.0.9"),
        (lambda flight: flight[0].update(wire=1), r"\(wire 1\), and this is RoQ"),
        (lambda flight: flight[0].update(lost=3, why_lost="old"), r"3 events are not there \(old"),
        (lambda flight: flight[0].update(kind="exchange"), "'exchange' is no kind of machine"),
        (lambda flight: flight[1].pop("queue"), "its birth makes no sense"),
        (lambda flight: flight[2][0].__setitem__(1, "Elected"), "event 0 makes no sense"),
        (lambda flight: flight[2][1].__setitem__(0, float("nan")), "event 1 makes no sense"),
        (lambda flight: flight[2][1].__setitem__(0, -1.0), "event 1 makes no sense"),
        (lambda flight: flight[2][0][2].update(peer=7), "is no tuple"),
        (lambda flight: flight[2][0][2].update(peer={"a": 7}), "is no tuple"),
        (lambda flight: flight[2][0][2].update(more=7), "Received makes no sense"),
        (lambda flight: flight[2][0][2].pop("peer"), "Received makes no sense"),
        (
            lambda flight: flight[2][0][2].update(
                peer={"error": "QueueNotFound", "text": "", "endpoint": ""}
            ),
            "QueueNotFound has no place here",
        ),
        (
            lambda flight: flight[2][0][2].update(
                peer={"error": "SystemExit", "text": "", "endpoint": ""}
            ),
            "'SystemExit' is no error of an event",
        ),
        (lambda flight: flight[2].__setitem__(0, 7), "not a whole flight"),
    ],
)
def test_what_makes_no_sense_is_refused(
    data: bytes, how: Callable[[Any], object], text: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        replay(changed(data, how))


def record(fields: object, raised: str = "") -> Record:
    return Record(0.0, "Told", msgspec.Raw(encode(fields)), [], raised)


def test_values_are_told_as_people_read_them(data: bytes) -> None:
    header = unchanged(data)[0]
    deep: Any = 7
    for _ in range(20):
        deep = [deep]
    told_as: dict[str, object] = {
        'a="text"': {"a": b"text"},
        'a="00ff"': {"a": b"\0\xff"},
        f'a="{BYTES_SHOWN + 1} bytes"': {"a": b"\xff" * (BYTES_SHOWN + 1)},
        r'a=[[[[[[["\u2026"]]]]]]]': {"a": deep},
        "[1,2]": [1, 2],
    }
    for text, fields in told_as.items():
        assert told(header, 3, record(fields)).split(maxsplit=2)[1:] == ["3", f"Told {text}"]
    assert len(told(header, 3, record(["x" * 9_000]))) < TEXT_MAX + 30
    late = msgspec.structs.replace(header, epoch=1e300)
    assert told(late, 3, record({})) == "at no time        3 Told"
    early = msgspec.structs.replace(header, epoch=0.25)
    assert told(early, 3, record({})).startswith("00:00:00.250 ")
    broken = Record(0.0, "Told", msgspec.Raw(b"\xc1"), [], "ValueError: 7")
    assert "Told (unreadable: " in told(header, 3, broken)
    assert wanted(broken) == ["raises ValueError: 7"]
