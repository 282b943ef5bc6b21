"""What a host manager writes down of its children, and what it believes of it later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from roq.hcm.records import OWN, ProcessRecord, Records
from roq.model import Limits, child_epoch
from roq.protocol.spec import ExchangeSpec, MonitorSpec, Spec
from roq.runtime import procfs

EPOCH = child_epoch(3, 1)
SLEEP = "import signal; signal.pause()"


def spec_of(number: int = 1, queue: str = "q", epoch: int = EPOCH) -> Spec:
    common = {
        "queue": queue, "queue_id": b"q" * 16, "epoch": epoch, "bind": "127.0.0.1",
        "advertise": "127.0.0.1", "ports": (0, 0), "manager": "tcp://127.0.0.1:5100",
        "limits": Limits(),
    }  # fmt: skip
    if number:
        return ExchangeSpec(  # type: ignore[arg-type]
            child=f"{queue}.x{number}", number=number, host="127.0.0.1", monitor="tcp://m:1",
            **common,
        )  # fmt: skip
    return MonitorSpec(child=f"{queue}.monitor", **common)  # type: ignore[arg-type]


Start = Callable[[Spec], int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that looks like the child of a spec, and write both down; gives its pid."""
    processes: list[subprocess.Popen[bytes]] = []
    records = Records(tmp_path)

    def begin(spec: Spec) -> int:
        path = records.write_spec(spec)
        processes.append(subprocess.Popen([sys.executable, "-c", SLEEP, str(path)]))
        while procfs.arguments(processes[-1].pid) == []:
            continue  # it is there, and has not got its arguments yet
        records.write_process(spec, processes[-1].pid)
        return processes[-1].pid

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def change(folder: Path, child: str, **values: object) -> None:
    path = folder / f"{child}.process"
    record = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **values)))


def test_children_that_live_are_found_with_what_they_were_told(tmp_path, start) -> None:
    pids = {spec.child: start(spec) for spec in (spec_of(0), spec_of(1))}
    left = Records(tmp_path).left().living
    assert {spec.child: record.pid for spec, record in left} == pids
    assert [spec for spec, _ in left] == [spec_of(0), spec_of(1)]
    # And again by the life after the next.
    assert len(Records(tmp_path).left().living) == 2


def test_what_lives_no_more_is_told_to_nobody_and_its_files_go_but_for_the_log(
    tmp_path, start
) -> None:
    pid = start(spec_of())
    (tmp_path / "q.x1.log").touch()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert Records(tmp_path).left().living == []
    assert names(tmp_path) == {"q.x1.log"}


def test_somebody_else_who_has_the_pid_now_is_nobody_of_ours(tmp_path, start) -> None:
    pid = start(spec_of())
    found = procfs.sample(pid)
    assert found is not None
    change(tmp_path, "q.x1", start=found.start - 1)
    assert Records(tmp_path).left().living == []


def test_a_pid_of_an_earlier_start_of_the_machine_says_nothing(tmp_path, start) -> None:
    start(spec_of())
    change(tmp_path, "q.x1", boot="another")
    assert Records(tmp_path).left().living == []


def test_a_process_that_reads_another_file_is_not_believed(tmp_path, start) -> None:
    start(spec_of())
    me = procfs.sample(os.getpid())
    assert me is not None
    change(tmp_path, "q.x1", pid=os.getpid(), start=me.start)
    assert Records(tmp_path).left().living == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"{", b"\xff\xfe", b"[]", b"{}", b'{"child": "q.x1", "pid": "1"}', b"9" * 10_000,
        b'{"child":"q.x1","epoch":1,"pid":-1,"start":1,"boot":""}',
        b'{"child":"q.x1","epoch":1,"pid":1,"start":1,"boot":""}',
        b'{"child":"q.x1","epoch":1,"pid":99999999999999999999,"start":1,"boot":""}',
        b'{"child":"../x1","epoch":1,"pid":5,"start":1,"boot":""}',
    ],
)  # fmt: skip
def test_a_record_that_is_garbage_is_refused_and_harms_no_other(
    tmp_path, start, garbage, caplog
) -> None:
    start(spec_of(1))
    start(spec_of(2))
    (tmp_path / "q.x1.process").write_bytes(garbage)
    assert [spec.child for spec, _ in Records(tmp_path).left().living] == ["q.x2"]
    assert "q.x1.process" in caplog.text
    assert names(tmp_path) == {"q.x2.json", "q.x2.process"}


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": EPOCH + 1}, {"child": "q.x2"}, {"number": 3}, {"queue": "../q"}, {"epoch": 0},
        {"limits": None}, {"type": "subscriber"}, {"epoch": 1 << 62},
    ],
)  # fmt: skip
def test_a_spec_of_another_version_or_child_is_refused(tmp_path, start, changes, caplog) -> None:
    start(spec_of())
    path = tmp_path / "q.x1.json"
    told = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**told, **changes}))
    assert Records(tmp_path).left().living == []
    assert "q.x1.process" in caplog.text


def test_what_a_newer_version_has_added_to_a_spec_is_passed_over(tmp_path, start) -> None:
    start(spec_of())
    path = tmp_path / "q.x1.json"
    told = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**told, "colour": "blue"}))
    assert [spec for spec, _ in Records(tmp_path).left().living] == [spec_of()]


def test_a_record_without_a_spec_and_a_spec_without_a_record_go(tmp_path, start) -> None:
    start(spec_of(1))
    start(spec_of(2))
    (tmp_path / "q.x1.json").unlink()
    (tmp_path / "q.x2.process").unlink()
    (tmp_path / "q.x3.json.new").touch()
    assert Records(tmp_path).left().living == []
    assert names(tmp_path) == set()


def test_neither_a_link_nor_a_pipe_is_read(tmp_path, start) -> None:
    start(spec_of(1))
    start(spec_of(2))
    real = tmp_path / "q.x1.process"
    real.rename(tmp_path / "elsewhere")
    real.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "q.x2.process").unlink()
    os.mkfifo(tmp_path / "q.x2.process")
    assert Records(tmp_path).left().living == []


def test_a_queue_may_have_a_name_that_looks_like_a_file(tmp_path, start) -> None:
    for queue in ("a.json", "a.process", "a.monitor", "x1.new", "-"):
        start(spec_of(1, queue))
        start(spec_of(0, queue))
    assert len(Records(tmp_path).left().living) == 10


def test_a_process_that_ends_takes_its_record_with_it_and_a_child_that_goes_its_spec(
    tmp_path, start
) -> None:
    start(spec_of())
    records = Records(tmp_path)
    records.ended("q.x1")
    assert names(tmp_path) == {"q.x1.json"}
    records.forget("q.x1")
    assert names(tmp_path) == set()


def test_where_a_child_listens_is_known_to_the_next_life_whether_it_lives_or_not(
    tmp_path, start
) -> None:
    records = Records(tmp_path)
    pid = start(spec_of())
    records.write_process(spec_of(), pid)
    records.write_ports("q.x1", (6000, 6001))
    left = Records(tmp_path).left()
    assert [record.ports for _, record in left.living] == [[6000, 6001]]
    assert left.resting == set()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert Records(tmp_path).left().resting == {6000, 6001}


def test_ports_that_were_to_be_avoided_are_known_to_the_next_life(tmp_path, start) -> None:
    start(msgspec.structs.replace(spec_of(), avoid_ports=[7000]))
    assert Records(tmp_path).left().resting == {7000}


@pytest.mark.parametrize("ports", [[0], [65_536], [-1], list(range(1, 20))])
def test_a_record_with_ports_that_cannot_be_is_refused(tmp_path, start, ports) -> None:
    start(spec_of())
    change(tmp_path, "q.x1", ports=ports)
    assert Records(tmp_path).left().living == []


def test_the_leader_that_was_obeyed_is_known_to_a_later_life(tmp_path: Path) -> None:
    assert Records(tmp_path).leader_epoch() == 0
    Records(tmp_path).write_leader(7)
    Records(tmp_path).left()  # tidies up
    assert Records(tmp_path).leader_epoch() == 7


def test_the_epochs_that_were_given_are_known_to_a_later_life(tmp_path: Path) -> None:
    assert Records(tmp_path).epoch() == 0
    Records(tmp_path).write_epoch(8)
    Records(tmp_path).left()
    assert Records(tmp_path).epoch() == 8
    assert Records(tmp_path).leader_epoch() == 0


def test_the_first_epoch_says_how_old_a_folder_is(tmp_path: Path) -> None:
    assert Records(tmp_path).since() == 0
    for epoch in (8, 12):
        Records(tmp_path).write_epoch(epoch)
        Records(tmp_path).left()
        assert Records(tmp_path).since() == 8


def test_how_old_the_folder_of_an_earlier_version_is_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / OWN).write_text("8")
    Records(tmp_path).write_epoch(9)
    assert Records(tmp_path).since() == 0


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"1048576", b"7" * 10_000, b"[7]"])
def test_a_leader_that_cannot_be_is_not_believed(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "leader.epoch").write_bytes(text)
    assert Records(tmp_path).leader_epoch() == 0
    assert "leader.epoch is of no use" in caplog.text
