"""`roq log`: what a folder holds is told, and what is wrong with it in a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roq.cli.commands import cli
from roq.exchange.machine import ExchangeCore
from roq.log.disk import DiskFiles
from roq.log.disk_groups import perform
from roq.log.records import HEAD_BYTES
from roq.log.recovery import LogSettings, open_log
from roq.model import Limits, PublisherId
from roq.protocol.batch import pack

BATCHES = 25


def roq(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["log", *map(str, arguments)])


def settings() -> LogSettings:
    return LogSettings(
        queue=b"q" * 16, exchange=3, epoch=5, cluster="c", host="h", ring_bytes=1 << 20,
        topics_max=100, topics_spare=0, capacity_bytes=1 << 30, keep_us=1 << 60,
        now_us=1_700_000_000_000_000, segment_entries=10,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    files = DiskFiles(tmp_path)
    log = open_log(files, settings())
    core: ExchangeCore[bytes] = ExchangeCore(b"q" * 16, 3, 5, Limits(), late=log)
    for number in range(BATCHES):
        batch = pack(
            [b"message %d" % number], publisher=PublisherId(b"p" * 16), epoch=1,
            link_number=number + 1, first_sequence=number, created_us=1,
        )  # fmt: skip
        assert log.append(b"eu.be", batch, len(batch)) is not None
        group = log.gather(core.snapshot)
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    yield tmp_path  # the exchange has it meanwhile
    files.close()


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def test_a_whole_log_is_verified_beside_its_exchange(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    done = roq("verify", folder)
    assert done.exit_code == 0, done.output
    assert "exchange x3, generation 5, of host h" in done.stdout
    assert len([line for line in done.stdout.splitlines() if ".seg" in line]) == 3
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_lost_is_told_and_the_command_fails(folder: Path) -> None:
    with segments(folder)[1].open("r+b") as file:
        file.seek(HEAD_BYTES + 100)
        file.write(b"\xff\xff")
    done = roq("verify", folder, "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert told["lost"] == 1
    assert [each["lost"] for each in told["segments"]] == [[], [[10, 11]], []]
    assert "1 entries cannot be read any more" in done.stderr
    assert "offsets 10 to 10 are lost" in roq("verify", folder).stdout


def test_the_end_that_is_being_written_is_no_loss(folder: Path) -> None:
    with segments(folder)[-1].open("ab") as file:
        file.write(b"\x50\x01\x00\x00half of it")
    done = roq("verify", folder, "--json")
    assert done.exit_code == 0
    (problem,) = json.loads(done.stdout)["segments"][-1]["problems"]
    assert "the next start cuts it off" in problem


def test_batches_are_printed_from_an_offset_on(folder: Path) -> None:
    done = roq("dump", folder, "--from", "9", "--count", "2", "--payloads", "--json")
    assert done.exit_code == 0, done.output
    first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert (first["offset"], first["topic"], first["kind"]) == (9, "eu.be", "data")
    assert (second["sequence"], second["payloads"]) == (10, ["message 10"])
    assert second["appended"] == "2023-11-14T22:13:20.000+00:00"
    text = roq("dump", folder, "--payloads").stdout.splitlines()
    assert len(text) == 2 * BATCHES
    assert text[-1].strip() == "message 24"


def test_a_folder_without_a_log_is_refused_in_a_line(tmp_path: Path) -> None:
    for command in ("verify", "dump"):
        done = roq(command, tmp_path)
        assert done.exit_code == 1
        assert "this folder holds no log of RoQ" in done.stderr
    assert roq("verify", tmp_path / "nowhere").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_fails_is_no_fault_of_the_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_text: str) -> None:
        raise OSError(28, "the output is full")

    monkeypatch.setattr("click.echo", full)
    for command in (["dump"], ["verify", "--json"]):
        done = roq(*command, folder)
        assert isinstance(done.exception, OSError), "who writes the output tells it"
        assert "cannot be read" not in done.stderr


@pytest.mark.parametrize("command", ["dump", "verify", "repair"])
def test_a_log_that_cannot_be_read_is_told_in_a_line(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    read = DiskFiles.read
    monkeypatch.setattr(
        DiskFiles, "read",
        lambda files, name, *at: (refuse if name.endswith(".seg") else read)(files, name, *at),
    )  # fmt: skip
    done = roq(command, folder)
    assert done.exit_code == 1
    assert f"{folder} cannot be read: [Errno 13]" in done.stderr


def test_a_log_that_a_process_has_is_not_repaired(folder: Path) -> None:
    refused = roq("repair", folder, "--yes")
    assert refused.exit_code == 1
    assert "another process has the log" in refused.stderr


def test_a_repair_is_told_and_then_done_with_a_copy_of_what_goes(tmp_path: Path) -> None:
    log = tmp_path / "x1"
    log.mkdir()
    made = DiskFiles(log)
    open_log(made, settings())
    made.close()
    half = log / "00000000000000000000-00000000000000000005.seg.new"
    half.write_bytes(b"half")
    aside = tmp_path / "aside"

    told = roq("repair", log, "--aside", aside)
    assert told.exit_code == 1
    assert "set aside: 0000" in told.output
    assert "nothing was changed" in told.output
    assert half.exists()
    assert not aside.exists()

    done = roq("repair", log, "--aside", aside, "--yes")
    assert done.exit_code == 0, done.output
    assert not half.exists()
    assert (aside / half.name).read_bytes() == b"half"
    assert roq("repair", log).output == "nothing to repair\n"


def test_a_folder_that_holds_no_log_gets_no_file_of_ours(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for command in ("verify", "dump", "repair"):
        done = roq(command, tmp_path)
        assert done.exit_code == 1
        assert "Name the folder of one exchange" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_a_start_would_refuse_is_verified_as_that(folder: Path) -> None:
    first = segments(folder)[0]
    copy = folder / first.name.replace("5.seg", "9.seg")
    copy.write_bytes(first.read_bytes())
    for done in (roq("verify", folder), roq("verify", folder, "--json")):
        assert done.exit_code == 1
        assert (
            f"does not start on this log: {copy.name}: it is a copy of {first.name}" in done.stderr
        )
    told = json.loads(done.stdout)
    assert sum(each["entries"] for each in told["segments"]) == BATCHES
    assert len(told["refused"]) == 1


def test_what_is_lost_is_told_also_where_a_start_refuses(folder: Path) -> None:
    first, second = segments(folder)[:2]
    copy = folder / first.name.replace("5.seg", "9.seg")
    copy.write_bytes(first.read_bytes())
    with second.open("r+b") as file:
        file.seek(HEAD_BYTES + 100)
        file.write(b"\xff\xff")
    done = roq("verify", folder)
    assert done.exit_code == 1
    assert f"{copy.name}: it is a copy of {first.name}" in done.stderr
    assert "1 entries cannot be read any more" in done.stderr


def test_a_file_that_only_has_the_name_of_a_segment_is_told(folder: Path) -> None:
    stray = folder / segments(folder)[0].name.replace("5.seg", "9.seg")
    stray.write_bytes(b"")
    done = roq("verify", folder, "--json")
    assert done.exit_code == 0
    (strange,) = json.loads(done.stdout)["strange"]
    assert strange.startswith(stray.name)
    assert stray.name in roq("verify", folder).stderr
    dumped = roq("dump", folder)
    assert len(dumped.stdout.splitlines()) == BATCHES
    assert stray.name in dumped.stderr
