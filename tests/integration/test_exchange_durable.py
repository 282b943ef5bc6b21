"""A real exchange process with a log on disk: ended, refused, out of room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq
from exchange_process import DEADLINE_SECONDS, EPOCH, QUEUE, Peers, Process, spec
from waiting import eventually

from roq.model import Limits
from roq.protocol import channel, documents
from roq.protocol.channel import Held, Hello, Ready, Reset
from roq.protocol.framing import split_answer
from roq.protocol.spec import encode_spec
from roq.runtime import exits

pytestmark = pytest.mark.integration
SMALL = Limits(message_bytes=1024 * 1024, ring_bytes=8 * 1024 * 1024)
UNGUARDED = msgspec.structs.replace(SMALL, disk_free_bytes=0, disk_free_files=0)


@contextmanager
def durable(
    tmp_path: Path, log: Path, epoch: int = EPOCH, limits: Limits = SMALL, *, ahead: bool = False
) -> Iterator[Process]:
    process = Process(tmp_path, spec(limits=limits, log=str(log), epoch=epoch, ahead=ahead))
    try:
        yield process
    finally:
        process.close()


def refused(tmp_path: Path, **fields: object) -> tuple[int, str]:
    """Start one that cannot start; its exit code, and the last line of its log."""
    path = tmp_path / "refused.json"
    path.write_bytes(encode_spec(spec(limits=SMALL, **fields)))
    ended = subprocess.run(
        [sys.executable, "-m", "roq.exchange", str(path)], capture_output=True, text=True,
        timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stderr.strip().splitlines()[-1]


def ready(peers: Peers, process: Process, name: str = "good", attempt: int = 2) -> Ready:
    """Come back after a connection was lost; what the exchange knows."""
    socket = peers.dealer(process.data)
    hello = Hello(queue=QUEUE, publisher=name.encode().ljust(16, b"."), epoch=1, attempt=attempt)
    socket.send_multipart([channel.HELLO, documents.encode(hello)])
    letter, body = split_answer(socket.recv())
    assert letter == channel.READY
    return documents.decode(body, Ready)


def test_another_process_goes_on_where_this_one_was_killed(tmp_path: Path, peers: Peers) -> None:
    log = tmp_path / "log"
    with durable(tmp_path, log) as first:
        reader = peers.reader(first, b"t")
        publisher = peers.publisher(first)
        for number in range(300):
            publisher.send(b"%d" % number)
            if number % 30 == 0:  # no more than a subscriber has room for
                publisher.settle()
        publisher.settle()
        assert [reader.payload() for _ in range(300)] == [b"%d" % number for number in range(300)]
        first.process.kill()
        first.wait()
    with durable(tmp_path, log, EPOCH + 1) as second:
        told = ready(peers, second)
        assert (told.expected, told.generation, told.durable) == (301, EPOCH, True)
        assert told.exchange_epoch == EPOCH + 1
        found = peers.reader(second, b"t").fetch((b"t", 0, 300))
        assert found == [b"%d" % number for number in range(300)]


def test_an_exchange_that_is_ahead_of_its_disk_says_what_is_synced_and_outlives_a_kill(
    tmp_path: Path, peers: Peers
) -> None:
    log = tmp_path / "log"
    with durable(tmp_path, log, ahead=True) as first:
        publisher = peers.publisher(first)
        for number in range(100):
            publisher.send(b"%d" % number)
        acked = synced = 0
        while acked < 100 or synced < 100:
            letter, body = split_answer(publisher.socket.recv())
            if letter == channel.ACK:
                acked = channel.read_number(body)
            else:
                assert letter == channel.SYNCED
                synced = channel.read_number(body)
                assert synced <= acked
        first.process.kill()
        first.wait()
    with durable(tmp_path, log, EPOCH + 1, ahead=True) as second:
        told = ready(peers, second)
        assert (told.expected, told.durable, told.ahead) == (101, True, True)
        found = peers.reader(second, b"t").fetch((b"t", 0, 100))
        assert found == [b"%d" % number for number in range(100)]


def test_what_was_taken_is_on_the_disk_when_it_is_stopped(tmp_path: Path, peers: Peers) -> None:
    log = tmp_path / "log"
    with durable(tmp_path, log) as first:
        publisher = peers.publisher(first)
        for number in range(200):
            publisher.send(b"%d" % number)
        acked = publisher.ack()
        assert first.stop() == exits.STOPPED
        publisher.socket.setsockopt(zmq.RCVTIMEO, 200)
        try:
            while True:
                acked = publisher.ack()
        except zmq.Again:
            pass
    with durable(tmp_path, log, EPOCH + 1) as second:
        assert ready(peers, second).expected == acked + 1


def test_one_process_at_a_time_has_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with durable(tmp_path, log) as first:
        code, line = refused(tmp_path, log=str(log), epoch=EPOCH + 1)
        assert code == exits.CONFIG
        assert "cannot start" in line
        assert "another process" in line
        assert str(log) in line
        assert first.stop() == exits.STOPPED


@pytest.mark.parametrize(
    ("fields", "word"), [({"queue_id": b"r" * 16}, "queue"), ({"number": 2}, "exchange")]
)
def test_the_log_of_another_one_is_left_alone(
    tmp_path: Path, fields: dict[str, object], word: str
) -> None:
    log = tmp_path / "log"
    with durable(tmp_path, log) as first:
        first.stop()
    before = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    code, line = refused(tmp_path, log=str(log), epoch=EPOCH + 1, **fields)
    assert code == exits.CONFIG
    assert word in line
    after = {path: path.read_bytes() for path in log.rglob("*") if path.is_file()}
    assert after == before


def test_a_folder_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, line = refused(tmp_path, log=str(tmp_path / "file" / "x1"))
    assert code == exits.CONFIG
    assert str(tmp_path / "file") in line


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A small disk of its own."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root: a small disk has to be mounted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with disk(tmp_path / "disk", "size=1m,ro") as folder:
        code, line = refused(tmp_path, log=str(folder / "x1"))
    assert code == exits.CONFIG
    assert "Read-only file system" in line or "read-only" in line


def test_a_full_disk_seals_its_log_which_is_read_and_kept(tmp_path: Path, peers: Peers) -> None:
    with disk(tmp_path / "disk", "size=2m") as folder:
        with durable(tmp_path, folder / "x1", limits=UNGUARDED) as first:
            publisher = peers.publisher(first)
            for _ in range(10):
                publisher.send(bytes(50_000))
            publisher.settle()
            for _ in range(100):
                publisher.send(bytes(50_000))
            acked, told = 10, ""
            while "sealed" not in told:
                letter, body = split_answer(publisher.socket.recv())
                acked = channel.read_number(body) if letter == channel.ACK else acked
                told = documents.decode(body, Held).full if letter == channel.HELD else told
            assert "cannot write its log" in told
            assert "No space left on device" in told
            assert acked < 110
            assert len(peers.reader(first, b"t").fetch((b"t", acked - 5, acked))) == 5
            first.stop()
            assert told.removeprefix("sealed: ").split(";")[0] in first.log.splitlines()[-1]
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        with durable(tmp_path, folder / "x1", EPOCH + 1) as second:
            assert ready(peers, second).expected >= acked + 1
            assert second.stop() == exits.STOPPED


def test_a_disk_that_is_nearly_full_holds_publishers_back_until_it_has_room(
    tmp_path: Path, peers: Peers
) -> None:
    with disk(tmp_path / "disk", "size=4m") as folder:
        filler = folder / "filler"
        filler.write_bytes(bytes(2_000_000))
        with durable(tmp_path, folder / "x1") as process:
            publisher = peers.publisher(process)
            for _ in range(100):
                publisher.send(bytes(50_000))
            acked, told = 0, ""
            while "disk_full" not in told:
                letter, body = split_answer(publisher.socket.recv())
                acked = channel.read_number(body) if letter == channel.ACK else acked
                told = documents.decode(body, Held).full if letter == channel.HELD else told
            assert f"{folder}/x1 of host 127.0.0.1" in told
            assert 5 < acked < 60
            reader = peers.reader(process, b"t")
            assert len(reader.fetch((b"t", acked - 5, acked))) == 5

            filler.unlink()  # somebody makes room, and nobody tells the exchange
            letter = b""
            while letter != channel.RESET:
                letter, body = split_answer(publisher.socket.recv())
            expected = documents.decode(body, Reset).expected
            assert expected > acked
            publisher.number = expected - 1
            publisher.send(b"again")
            publisher.settle()
            assert "disk_full: " in process.log
            eventually(lambda: "the disk has room again" in process.log)
            assert process.stop() == exits.STOPPED
