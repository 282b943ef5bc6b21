"""`roq debug`: files of flights are told and replayed; what cannot be is said in a line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from monitor_driver import Driver
from recorded import data_of, recorded

from roq.cli.commands import cli
from roq.protocol.kpi import NUMERIC_TOPIC
from roq.runtime.flight import MAGIC


def roq(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["debug", *map(str, arguments)], catch_exceptions=False)


def monitor_data(kilobytes: int = 1_000) -> bytes:
    with recorded(kilobytes) as recorders:
        monitor = Driver()
        monitor.report(1)
        monitor.attach("p")
        monitor.advance(3.0, (1, 1))
        monitor.stop()
        monitor.advance(1.0)
    return data_of(recorders)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.flight"
    path.write_bytes(monitor_data())
    return path


def change(path: Path, how: Callable[[Any], object]) -> None:
    """Have somebody write another thing into the first flight of a file."""
    flights = msgspec.msgpack.decode(path.read_bytes()[len(MAGIC) :])
    how(flights[0])
    path.write_bytes(MAGIC + msgspec.msgpack.encode(flights))


def test_a_flight_is_told_line_by_line(file: Path) -> None:
    lines = roq("show", file).output.splitlines()
    assert lines[0].startswith("# monitor of RoQ 0.1.0 (wire 2), process ")
    assert lines[0].endswith("from its birth")
    assert any(" Received peer=" in line and '"CMD":3200' in line for line in lines)
    assert any("→ Send peer=" in line for line in lines)
    # Documents inside of frames are shown as what they say.
    assert any("→ Publish" in line and '"policy":"balanced"' in line for line in lines)
    assert NUMERIC_TOPIC.hex() in "\n".join(lines)


def test_a_new_machine_does_the_same(file: Path) -> None:
    done = roq("replay", file)
    assert done.exit_code == 0
    assert done.output.endswith("events, the same effects\n")


def test_an_effect_that_was_another_is_shown_beside_the_one_that_is(file: Path) -> None:
    def later(flight: Any) -> None:
        record = next(each for each in flight[2] if any(name == "Send" for name, _ in each[3]))
        record[3][0][1]["message"]["epoch"] = 5

    change(file, later)
    done = roq("replay", file)
    assert done.exit_code == 1
    recorded_line, replayed_line = (
        next(line for line in done.output.splitlines() if line.startswith(f"  {word}: Send"))
        for word in ("recorded", "replayed")
    )
    assert '"epoch":5' in recorded_line
    assert '"epoch":458752' in replayed_line
    assert "event 0 of " in done.output
    assert "1 of the machines did something else" in done.output


def test_of_several_machines_each_is_replayed(file: Path) -> None:
    whole, short = monitor_data(), monitor_data(kilobytes=2)
    flights = [msgspec.msgpack.decode(data[len(MAGIC) :])[0] for data in (short, whole)]
    file.write_bytes(MAGIC + msgspec.msgpack.encode(flights))
    done = roq("replay", file)
    assert done.exit_code == 1
    assert "cannot be replayed: " in done.output
    assert "the same effects" in done.output


def test_what_a_file_says_moves_no_cursor(file: Path) -> None:
    def hostile(flight: Any) -> None:
        flight[0].update(name="\x1b[2J", kind="\x9b", roq="\u202e")
        flight[2][0][1] = flight[2][0][4] = "\x1b]0;x\x07"

    change(file, hostile)
    for command in ("show", "replay"):
        assert not set(roq(command, file).output) & {"\x1b", "\x9b", "\u202e", "\x07"}


def test_a_flight_of_another_version_is_told_and_not_replayed(file: Path) -> None:
    change(file, lambda flight: flight[0].update(roq="0.0.9", wire=1))
    done = roq("replay", file)
    assert done.exit_code == 1
    assert "a flight of RoQ 0.0.9 (wire 1), and this is RoQ 0.1.0 (wire 2)" in done.output
    assert roq("show", file).exit_code == 0


def test_one_that_has_lost_its_beginning_is_told_and_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(monitor_data(kilobytes=2))
    done = roq("replay", path)
    assert done.exit_code == 1
    assert "events are not there (only the last 2 kB are kept)" in done.output
    assert "only the last 2 kB are kept" in roq("show", path).output.splitlines()[0]


def test_a_file_that_is_none_or_not_there_is_said_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert roq("show", path).output == f"Error: {path}: No such file or directory\n"
    path.write_bytes(monitor_data()[:-1])
    assert "not a whole flight" in roq("replay", path).output
    path.write_text("hello")
    assert roq("replay", path).output == f"Error: {path}: no flight of RoQ\n"


def test_a_process_that_would_be_ended_by_the_signal_gets_none() -> None:
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "roq"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = roq("record", str(process.pid))
        assert done.exit_code == 1
        assert "is no daemon of RoQ that keeps what it does" in done.output
        assert process.poll() is None
        process.communicate(b"")
    assert process.returncode == 0
    assert f"there is no process {process.pid}" in roq("record", str(process.pid)).output
