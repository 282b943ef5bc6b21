"""What is kept of a machine, how much of it, and how it gets into a file."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from roq.errors import ConfigError, RemoteProtocolError
from roq.machine import Tick
from roq.runtime import flight
from roq.runtime.flight import (
    MAGIC,
    FlightKind,
    Recorder,
    decode,
    encode,
    kept_kilobytes,
    read,
    save,
)


@dataclass(frozen=True)
class Told:
    value: object


@dataclass(frozen=True)
class Said:
    value: object


class Echo:
    """Says what it is told; raises errors that it is told."""

    def handle(self, event: Told | Tick, now: float) -> list[Said]:
        del now
        if isinstance(event, Told) and isinstance(event.value, ValueError):
            raise event.value
        return [Said(event.value)] if isinstance(event, Told) else []

    def next_deadline(self) -> float | None:
        return None

    def check(self) -> None:
        return


def recorder(kilobytes: int = 64) -> Recorder[Told | Tick, Said]:
    return Recorder(FlightKind("echo", dict, Told | Tick, Echo), "e", dict, Echo(), kilobytes)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(flight.FOLDER, str(tmp_path / "flights"))
    return tmp_path / "flights"


def events_of(one: Recorder[Told | Tick, Said]) -> list[flight.Record]:
    return decode(MAGIC + encode([one.flight()]))[0][2]


def test_events_are_kept_with_their_time_and_effects() -> None:
    one = recorder()
    assert one.handle(Told("x"), 1.5) == [Said("x")]
    assert one.handle(Tick(), 2.0) == []
    first, second = events_of(one)
    assert (first.now, first.event, first.raised) == (1.5, "Told", "")
    assert [name for name, _ in first.effects] == ["Said"]
    assert msgspec.msgpack.decode(first.fields) == {"value": "x"}
    assert (second.now, second.event, second.effects) == (2.0, "Tick", [])


def test_what_is_changed_later_is_kept_as_it_was() -> None:
    one = recorder()
    value = [1]
    one.handle(Told(value), 1.0)
    value.append(2)
    assert msgspec.msgpack.decode(events_of(one)[0].fields) == {"value": [1]}


def test_the_oldest_go_when_there_is_no_room() -> None:
    one = recorder(kilobytes=1)
    for number in range(100):
        one.handle(Told(f"{number:100}"), float(number))
    kept = events_of(one)
    header = decode(MAGIC + encode([one.flight()]))[0][0]
    assert 0 < len(kept) < 10
    assert kept[-1].now == 99.0
    assert header.lost == 100 - len(kept)
    assert header.why_lost == "only the last 1 kB are kept"


def test_small_events_are_bounded_in_number_as_well() -> None:
    one = recorder(kilobytes=1)
    for _ in range(1_000):
        one.handle(Tick(), 1.0)
    assert len(events_of(one)) < 1024 / flight.RECORD_BYTES


def test_no_more_memory_is_taken_than_may_be_kept() -> None:
    one = recorder(kilobytes=256)
    tracemalloc.start()
    try:
        for number in range(2_000):
            one.handle(Told("x" * (number % 3_000)), 1.0)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 270 * 1024


def test_one_that_is_larger_than_all_that_may_be_kept_is_not() -> None:
    one = recorder(kilobytes=1)
    one.handle(Told("x" * 2_000), 1.0)
    assert events_of(one) == []


def test_nothing_is_kept_if_that_is_wanted() -> None:
    one = recorder(kilobytes=0)
    assert one.handle(Told("x"), 1.0) == [Said("x")]
    assert events_of(one) == []


def test_what_a_machine_raises_is_kept_and_raised() -> None:
    one = recorder()
    with pytest.raises(ValueError, match="seven"):
        one.handle(Told(ValueError("seven")), 1.0)
    # The error itself cannot be written down as part of an event.
    assert decode(MAGIC + encode([one.flight()]))[0][0].lost == 1
    one = recorder()
    one._machine.handle = lambda _event, _now: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        one.handle(Told(1), 1.0)
    assert events_of(one)[0].raised.startswith("ZeroDivisionError: ")


def test_what_cannot_be_written_down_counts_as_lost_and_ends_nothing() -> None:
    one = recorder()
    assert one.handle(Told(object()), 1.0) != []
    assert one.handle(Told(1 << 70), 1.0) != []
    header = decode(MAGIC + encode([one.flight()]))[0][0]
    assert header.lost == 2
    assert header.why_lost.startswith("Told: ")


def test_a_file_is_for_its_user_alone_and_the_next_takes_its_place(folder: Path) -> None:
    one = recorder()
    one.handle(Told("x"), 1.0)
    save("echo", [one, recorder()])
    save("echo", [one, recorder()])
    (path,) = folder.iterdir()
    assert path.name.startswith("echo.")
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [len(each[2]) for each in read(path)] == [1, 0]


def test_a_crash_has_a_file_of_its_own(folder: Path) -> None:
    save("echo", [recorder()])
    save("echo", [recorder()], crashed=True)
    assert max(each.suffixes[-2] for each in folder.iterdir()) == ".crash"


def test_a_folder_keeps_so_many_files(folder: Path) -> None:
    for number in range(flight.FILES_MAX + 3):
        save(f"echo{number}", [recorder()])
    assert len(list(folder.iterdir())) == flight.FILES_MAX


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_can_write_to_is_not_used(
    folder: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with caplog.at_level(logging.WARNING):
        save("echo", [recorder()])
    assert list(folder.iterdir()) == []
    assert "no other can write to" in caplog.text


def test_a_link_that_somebody_has_put_there_is_not_followed(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    save("echo", [recorder()])
    assert list(folder.iterdir()) == []
    assert "flight" in caplog.text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no flight of RoQ"),
        (b"\x7fELF", "no flight of RoQ"),
        (b"RoQ flight 7\nx", "in format '7'; RoQ 0.1.0 reads format '1'"),
        (MAGIC, "not a whole flight"),
        (MAGIC + encode([recorder().flight()])[:-1], "not a whole flight"),
        (MAGIC + encode([recorder().flight()]) + b"\0", "not a whole flight"),
        (MAGIC + encode([[{"roq": "0.1.0"}, {}, []]]), "wire"),
    ],
    ids=["nothing", "a program", "another format", "its name only", "cut", "too long", "a hole"],
)  # fmt: skip
def test_what_is_no_flight_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        decode(data)


def test_how_much_is_kept_is_said_by_a_variable() -> None:
    assert kept_kilobytes({}, 256) == 256
    assert kept_kilobytes({"ROQ_FLIGHT_KB": "0"}, 256) == 0
    for text in ("x", "-1", "1.5", str(1 << 30), "9" * 5_000):
        with pytest.raises(ConfigError, match="ROQ_FLIGHT_KB"):
            kept_kilobytes({"ROQ_FLIGHT_KB": text}, 256)
