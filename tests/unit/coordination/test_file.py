"""The registry in a file keeps the contract, and bears what can happen to a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from posting import Loop
from registry_contract import Candidate, RegistryContract

from roq.coordination import database, file, session_locks
from roq.coordination.database import Database
from roq.coordination.file import FileRegistry
from roq.coordination.registry_contract import (
    Committed,
    Conflict,
    Create,
    Node,
    Registry,
    SessionState,
    Set,
)
from roq.errors import ConfigError, RegistryAway

SESSION_SECONDS = 10.0
"""A machine that does other work must not end it."""


class InFile:
    """Registries of one cluster, each with a way of its own to the file."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.folder = folder
        self.path = folder / "real" / "cluster.db"
        self.path.parent.mkdir()
        self.session_seconds = SESSION_SECONDS
        self._ways: dict[Registry, Path] = {}

    def registry(self) -> FileRegistry:
        way = self.folder / f"way-{len(self._ways)}"
        way.symlink_to(self.path.parent)
        made = FileRegistry(
            way / self.path.name, self.loop.post, session_seconds=self.session_seconds
        )
        self._ways[made] = way
        return made

    def cut(self, registry: Registry) -> None:
        way = self._ways[registry]
        way.unlink()
        way.symlink_to(self.folder / "nowhere")

    def mend(self, registry: Registry) -> None:
        way = self._ways[registry]
        way.unlink()
        way.symlink_to(self.path.parent)

    def expire(self, registry: Registry) -> None:
        assert isinstance(registry, FileRegistry)
        self.cut(registry)
        database = Database(self.path)
        database.end([registry._store.session])
        database.close()

    def close(self) -> None:
        for registry in self._ways:
            registry.close()


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[InFile]:
    made = InFile(tmp_path)
    yield made
    made.close()


class TestFileRegistry(RegistryContract):
    def test_what_is_set_by_hand_is_seen_and_has_a_version_of_its_own(
        self, ensemble: InFile
    ) -> None:
        registry, _ = self.open(ensemble)
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        by_hand(ensemble.path, "UPDATE nodes SET data = 'mine' WHERE path = '/leader'")
        ensemble.loop.until(lambda: len(one.led) == 2, "that it leads anew")
        assert one.led[1].version == one.led[0].version + 2

    # --- the file under a running cluster ---------------------------------------------------------

    def test_a_file_that_was_removed_is_made_anew_after_a_while(
        self, ensemble: InFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(file, "REMAKE_SECONDS", 0.6)
        registries = [self.open(ensemble) for _ in range(2)]
        (registry, states), (other, others) = registries
        self.commit(ensemble, registry, Create("/queues/a"))
        done: list[Committed | Conflict] = []
        registry.register_host("h1", b"1", done.append)
        ensemble.loop.until(lambda: len(done) == 1, "the registration")
        ensemble.path.unlink()
        refused = self.commit(ensemble, registry, Create("/queues/b"))
        assert isinstance(refused, RegistryAway)
        assert "it was removed" in str(refused)
        anew = [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
        ensemble.loop.until(lambda: states[1:] == others[1:] == anew, "a new file")
        assert self.read(ensemble, registry, "/queues/a") is None
        ensemble.loop.until(lambda: len(done) == 2, "the registration anew")
        assert isinstance(self.read(ensemble, other, "/hosts/h1"), Node)

    def test_another_file_in_its_place_is_taken_for_what_it_is(
        self, ensemble: InFile, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        elsewhere = tmp_path / "elsewhere" / "cluster.db"
        with contextlib.closing(FileRegistry(elsewhere, ensemble.loop.post)) as second:
            second.start(lambda _: None)
            ensemble.loop.until(lambda: second.state is SessionState.CONNECTED, "a connection")
            self.name(ensemble, second, "c2")
        registry, states = self.open(ensemble)
        self.name(ensemble, registry, "c1")
        one = Candidate(registry, b"one", home="c1")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        elsewhere.replace(ensemble.path)
        ensemble.loop.until(lambda: states[-2:] == [SessionState.LOST, states[0]], "the other one")
        assert ensemble.loop.ask(registry.cluster_id) == "c2"
        assert "c2" in one.asked
        assert len(one.led) == 1, "it belongs to another cluster"

    def test_a_file_that_is_damaged_while_it_is_used_is_away_until_it_is_replaced(
        self, ensemble: InFile
    ) -> None:
        registry, states = self.open(ensemble)
        ensemble.expire(registry)  # nothing of it is in the memory of its connection
        size = ensemble.path.stat().st_size
        with ensemble.path.open("r+b") as spoilt:
            spoilt.write(b"x" * size)
        ensemble.mend(registry)
        ensemble.loop.until(lambda: states[-1] is SessionState.SUSPENDED, "that it is away")
        answer = ensemble.loop.ask(partial(registry.read, "/queues"))
        assert isinstance(answer, RegistryAway)
        for name in ensemble.path.parent.glob("cluster.db-*"):
            name.unlink()
        Database(ensemble.path.parent / "new.db").close()
        (ensemble.path.parent / "new.db").replace(ensemble.path)
        ensemble.loop.until(lambda: states[-1] is SessionState.CONNECTED, "the new one")
        assert isinstance(self.commit(ensemble, registry, Create("/queues/a")), Committed)

    def test_a_file_without_room_is_away_and_comes_back(self, ensemble: InFile) -> None:
        registry, states = self.open(ensemble)
        connection = registry._store._worker._database._connection
        connection.execute("PRAGMA max_page_count = 1")  # as many as there are
        large = Create("/queues/large", bytes(500_000))
        refused = self.commit(ensemble, registry, large)
        assert isinstance(refused, RegistryAway)
        assert "full" in str(refused)
        connection.execute("PRAGMA max_page_count = 1000000")
        ensemble.loop.until(lambda: states[1:] == [SessionState.SUSPENDED, states[0]], "it is back")
        assert self.commit(ensemble, registry, large) == Committed((0,))

    def test_a_file_that_another_process_locks_is_away_and_comes_back(
        self, ensemble: InFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
        registry, states = self.open(ensemble)
        other = sqlite3.connect(ensemble.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        refused = self.commit(ensemble, registry, Create("/queues/a"))
        assert isinstance(refused, RegistryAway)
        assert "locked" in str(refused)
        other.execute("ROLLBACK")
        other.close()
        ensemble.loop.until(lambda: states[1:] == [SessionState.SUSPENDED, states[0]], "it is back")
        assert self.commit(ensemble, registry, Create("/queues/a")) == Committed((0,))

    def test_who_finds_another_one_opening_the_file_tries_again(
        self, ensemble: InFile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session_locks, "GUARD_SECONDS", 0.1)
        locks = session_locks.SessionLocks(ensemble.path.with_name("cluster.db.lock"))
        states: list[SessionState] = []
        with locks.guard():
            with pytest.raises(RegistryAway, match="another process has been opening"):
                Database(ensemble.path)
            registry = ensemble.registry()
            registry.start(states.append)
        ensemble.loop.until(lambda: states == [SessionState.CONNECTED], "a connection")
        locks.close()

    def test_what_other_programs_have_written_ends_nothing(self, ensemble: InFile) -> None:
        registry, states = self.open(ensemble)
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        seen: list[tuple[str, ...]] = []
        registry.watch_children("/queues", seen.append)
        junk = "INSERT INTO nodes VALUES (?, '/queues', 1.5, 'v', 'w', 'm', 'c', 'd')"
        for path in (b"\xff", b"/queues/\xff", "/queues/\a", "/queues/a/b"):
            by_hand(ensemble.path, junk, path)
        by_hand(ensemble.path, "UPDATE nodes SET children = children + 1 WHERE path = '/queues'")
        ensemble.loop.until(lambda: bool(seen) and len(seen[-1]) == 4, "all of them")
        tree = ensemble.loop.ask(partial(registry.read_tree, "/queues"))
        assert isinstance(tree, list)
        assert isinstance(self.commit(ensemble, registry, Create("/queues/a")), Committed)
        by_hand(ensemble.path, "UPDATE counters SET value = 'x'")
        assert isinstance(self.commit(ensemble, registry, Create("/queues/b")), Committed)
        assert states == [SessionState.CONNECTED]
        by_hand(ensemble.path, "DELETE FROM counters")
        refused = self.commit(ensemble, registry, Create("/queues/c"))
        assert isinstance(refused, RegistryAway)
        assert "counter" in str(refused)
        by_hand(ensemble.path, "INSERT INTO counters VALUES ('transaction', 900), ('session', 900)")
        ensemble.loop.until(lambda: states[-1] is SessionState.CONNECTED, "that it is mended")

    # --- sessions of processes --------------------------------------------------------------------

    def test_what_a_killed_process_had_is_gone_at_once(self, ensemble: InFile) -> None:
        observer, _ = self.open(ensemble)
        ensemble.session_seconds = 600.0
        with process(ensemble.path, "h1", 600.0) as child:
            assert isinstance(self.read(ensemble, observer, "/hosts/h1"), Node)
            child.kill()
            self.gone(ensemble, observer, "/hosts/h1")

    def test_a_stopped_process_loses_its_session_and_gets_another_one(
        self, ensemble: InFile
    ) -> None:
        observer, _ = self.open(ensemble)
        with process(ensemble.path, "h1", 1.0) as child:
            before = self.read(ensemble, observer, "/hosts/h1")
            assert isinstance(before, Node)
            child.send_signal(signal.SIGSTOP)
            self.gone(ensemble, observer, "/hosts/h1")
            child.send_signal(signal.SIGCONT)
            assert child.stdout is not None
            while child.stdout.readline().strip() != "registered":
                continue
            after = self.read(ensemble, observer, "/hosts/h1")
            assert isinstance(after, Node)
            assert after.owner != before.owner

    def test_nobody_loses_a_session_because_all_have_slept(self, ensemble: InFile) -> None:
        with process(ensemble.path, "h1", 1.0) as one, process(ensemble.path, "h2", 1.0) as two:
            owners = self.owners(ensemble.path)
            for child in (one, two):
                child.send_signal(signal.SIGSTOP)
            threading.Event().wait(3.0)  # that of both is over, as each sees the other
            for child in (two, one):
                child.send_signal(signal.SIGCONT)
            looks = [beats(ensemble.path, owner) for owner in owners]
            deadline = time.monotonic() + 60
            while any(
                beats(ensemble.path, owner) < before + 4
                for owner, before in zip(owners, looks, strict=True)
            ):
                assert time.monotonic() < deadline, "they beat no more"
            assert self.owners(ensemble.path) == owners

    def test_no_epoch_is_given_twice_whatever_is_killed(self, ensemble: InFile) -> None:
        observer, _ = self.open(ensemble)
        self.name(ensemble, observer)
        drawn: list[int] = []
        for _ in range(2):
            with contextlib.ExitStack() as stack:
                children = [stack.enter_context(process(ensemble.path, "", 10.0)) for _ in range(2)]
                for child in children:
                    assert child.stdout is not None
                    drawn.extend(int(child.stdout.readline()) for _ in range(10))
                    child.kill()
                    drawn.extend(int(line) for line in child.stdout if line.endswith("\n"))
            drawn.append(ensemble.loop.ask(observer.next_host_epoch))
        assert len(set(drawn)) == len(drawn)
        assert drawn[-1] == max(drawn)

    def gone(self, ensemble: InFile, observer: Registry, path: str) -> None:
        seen: list[tuple[str, ...]] = []
        parent, _, name = path.rpartition("/")
        observer.watch_children(parent, seen.append)
        ensemble.loop.until(lambda: bool(seen) and name not in seen[-1], "that it is gone")

    def owners(self, path: Path) -> list[int]:
        rows = by_hand(path, "SELECT owner FROM nodes WHERE owner != 0 ORDER BY path")
        return [int(owner) for (owner,) in rows]


# --- what is no registry --------------------------------------------------------------------------


def opened(path: Path) -> None:
    FileRegistry(path, lambda _: None).close()


def by_hand(path: Path, statement: str, *values: str | bytes) -> list[tuple[object, ...]]:
    """What an operator does to the file."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def beats(path: Path, session: int) -> int:
    locks = session_locks.SessionLocks(path.with_name(f"{path.name}.lock"))
    try:
        place = locks.place(session)
    finally:
        locks.close()
    assert place is not None
    return place


_CHILD = """
import sys
from pathlib import Path
from posting import Loop
from roq.coordination.file import FileRegistry
from roq.coordination.registry_contract import SessionState

path, host, seconds = sys.argv[1:]
loop = Loop()
registry = FileRegistry(Path(path), loop.post, session_seconds=float(seconds))
registry.start(lambda _: None)
loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
if host:
    registry.register_host(host, b"1", lambda _: print("registered", flush=True))
else:
    draw = lambda number: (print(number, flush=True), registry.next_host_epoch(draw))
    registry.next_host_epoch(draw)
while True:
    loop.until(lambda: False, "the end")
"""


@contextlib.contextmanager
def process(path: Path, host: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Another process with a session: it registers a host, or draws epochs."""
    support = Path(__file__).parents[2] / "support"
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(path), host, str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(support)},
    )
    try:
        if host:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "registered"
        yield child
    finally:
        child.kill()
        child.communicate()


def test_a_file_is_made_whole_and_closed_without_leavings(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    opened(path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cluster.db", "cluster.db.lock"]
    assert by_hand(path, "PRAGMA user_version") == [(database.FORMAT,)]
    assert by_hand(path, "PRAGMA journal_mode") == [("wal",)]


def test_what_is_left_beside_a_removed_file_does_not_get_into_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    with process(path, "h1", 10.0) as child:
        child.kill()
    assert (tmp_path / "cluster.db-wal").stat().st_size
    path.unlink()
    opened(path)
    assert by_hand(path, "SELECT path FROM nodes") == [("",)]


def test_what_is_left_beside_a_replaced_file_does_not_get_into_the_next_one(tmp_path: Path) -> None:
    path, other = tmp_path / "cluster.db", tmp_path / "other.db"
    with process(path, "h1", 10.0) as child:
        child.kill()
    opened(other)
    by_hand(other, "UPDATE nodes SET data = 'other' WHERE path = ''")
    other.replace(path)
    opened(path)
    assert by_hand(path, "SELECT path, data FROM nodes") == [("", "other")]


def test_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_text("these are the notes of a colleague " * 100)
    with pytest.raises(ConfigError, match=r"cluster\.db is no SQLite database"):
        opened(path)
    assert path.read_text().startswith("these are")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.touch()
    with pytest.raises(ConfigError, match="another program"):
        opened(path)


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "browser.db"
    by_hand(path, "CREATE TABLE history (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"browser\.db is a SQLite database of another program"):
        opened(path)
    assert path.read_bytes() == before


def test_another_format_is_refused_and_both_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    opened(path)
    by_hand(path, "PRAGMA user_version = 7")
    with pytest.raises(ConfigError, match="has format 7, and this version of RoQ knows format 1"):
        opened(path)


def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        opened(tmp_path / "none" / "cluster.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="is no file"):
        opened(tmp_path / "folder")


def test_a_file_system_that_other_machines_use_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "shared_file_system", lambda _: "nfs4")
    with pytest.raises(ConfigError, match=r"other machines may use, too \(nfs4\)"):
        opened(tmp_path / "cluster.db")
    assert list(tmp_path.iterdir()) == []


@contextlib.contextmanager
def nobody() -> Iterator[Path]:
    """A folder of our own, and no more rights than anybody."""
    folder = Path(tempfile.mkdtemp(prefix="roq-test-"))
    root = os.geteuid() == 0
    try:
        folder.chmod(0o755)
        opened(folder / "cluster.db")
        folder.chmod(0o555)
        for each in folder.iterdir():
            each.chmod(0o444)
        if root:
            os.seteuid(65_534)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_what_cannot_be_written_to_is_refused() -> None:
    with nobody() as folder:
        with pytest.raises(ConfigError, match=r"cluster\.db\.lock cannot be written"):
            opened(folder / "cluster.db")
        with pytest.raises(ConfigError, match="name a folder that this process may write to"):
            opened(folder / "new.db")


def test_a_file_that_can_only_be_read_is_refused() -> None:
    with nobody() as folder:
        lock = folder / "cluster.db.lock"
        if os.geteuid() != os.getuid():
            os.seteuid(0)
        folder.chmod(0o777)
        lock.chmod(0o666)
        if os.getuid() == 0:
            os.seteuid(65_534)
        with pytest.raises(ConfigError, match="cannot be written to"):
            opened(folder / "cluster.db")


# --- other machines -------------------------------------------------------------------------------


def leave_session(path: Path, boot: str, machine: str) -> None:
    """As another start of a machine has left it when its power went."""
    opened(path)
    by_hand(path, "INSERT INTO sessions VALUES (7, 6.0, ?, ?, 'rome')", boot, machine)
    by_hand(
        path,
        "INSERT INTO nodes (path, parent, data, owner, made, changed) VALUES ('/h', '', x'', 7, 1, "
        "1)",
    )


def test_a_file_in_use_by_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    leave_session(path, "another-start", "another-machine")
    with pytest.raises(ConfigError, match=r"in use by another machine \(rome\)"):
        opened(path)
    by_hand(path, "DELETE FROM sessions")
    opened(path)


def test_what_this_machine_had_before_it_was_started_again_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    leave_session(path, "another-start", database.machine()[1])
    loop = Loop()
    registry = FileRegistry(path, loop.post)
    registry.start(lambda _: None)
    loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
    assert loop.ask(partial(registry.read, "/h")) is None
    registry.close()


def test_a_registry_that_was_never_started_is_away_and_can_be_closed(tmp_path: Path) -> None:
    loop = Loop()
    registry = FileRegistry(tmp_path / "cluster.db", loop.post)
    assert registry.state is SessionState.LOST
    answer = loop.ask(lambda done: registry.commit([Set("/queues/a", b"")], None, done))
    assert isinstance(answer, RegistryAway)
    registry.close()
    registry.close()
