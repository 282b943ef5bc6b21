"""The store of a cluster on one machine: a SQLite file, and one thread that uses it.

The thread does what it is asked for, in that order, and looks around twice a second: whether the
file is still the one that it has opened, what others have changed, and which sessions have ended.
Who writes something tells the others (an empty datagram to each), so they look at once; where that
does not arrive, as between network namespaces, they see it at the next look.

A session ends

* when its process does: the system takes its lock away, and the next look of another process
  removes what lived with it;
* when its process is silent for `session_seconds`, as one is that was stopped. That is what
  ZooKeeper does, and for the same reason: a leader that does nothing keeps all others from leading,
  and a host that does nothing keeps what it had. Each looks for itself, and counts the time between
  its own looks only up to a bound: so nothing ends because the whole machine has slept.

Whatever a process believes of its session, each of its writes checks in its own transaction that
the session is there, so one that was taken for lost writes nothing any more.

All state that the user sees has one owner, the user's loop; all of the file has one, the thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

from roq.coordination.database import Database, Place, Session, SessionGone, State
from roq.coordination.registry import StoreRegistry
from roq.coordination.registry_contract import Node, Post, SessionState
from roq.coordination.store_contract import MultiResult, Step, Watch
from roq.errors import ConfigError, RegistryAway
from roq.timing import SESSION_SECONDS

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
"""Between two looks when nothing happens. Each takes some 0.2 ms."""
SILENT_SECONDS_MIN: Final = 4 * LOOK_SECONDS
"""A process that works beats as often as it looks, or a little later."""
TOLD_SECONDS: Final = 0.01
"""Between two looks when others tell of one change after the other."""
REMAKE_SECONDS: Final = 2.0
"""A file that was removed is made anew after so long: meanwhile another one may be put there."""
REQUESTS_WAITING_MAX: Final = 10_000
CLOSE_SECONDS: Final = 2.0
_TASKS_AT_ONCE: Final = 64
"""Then it looks whether it is time to show that it lives."""
_DATAGRAMS_MAX: Final = 64
"""Read at once; what they say is said by one of them."""

Result = TypeVar("Result")
Work = Callable[["_Worker", Database], object]
Watched = tuple[Callable[[Database, str], "State | None"], str, Watch]


class FileStore:
    """What the registry asks of the file.

    Args:
        path: of the file; made if missing.
        post: runs a function in the owner's loop.
        session_seconds: how long the others wait for a silent process.

    Raises:
        ConfigError: it can be no registry, or not from here.
    """

    def __init__(self, path: Path, post: Post, session_seconds: float) -> None:
        self._path = path
        self._post = post
        self._on_session: Callable[[SessionState], None] | None = None
        self._connection = 0
        """Number of the present one, 0 if there is none."""
        self._session = 0
        self._why = "it has not been opened yet"
        self._calls = 0
        self._outstanding: dict[int, Callable[[object], None]] = {}
        self._closed = False
        self._worker = _Worker(path, session_seconds, self)

    @property
    def session(self) -> int:
        """The present session, 0 before the first."""
        return self._session

    def start(self, on_session: Callable[[SessionState], None]) -> None:
        """Open the file and keep it open, telling each change of the session."""
        self._on_session = on_session
        self._worker.start()

    def read(
        self, path: str, watch: Watch | None, done: Callable[[Node | RegistryAway | None], None]
    ) -> None:
        """Fetch a node; `watch` fires when its data changes, or it is made or deleted."""

        def work(worker: _Worker, database: Database) -> Node | None:
            worker.watch(Database.data_state, path, watch)
            return worker.still_ours(database.node(path))

        self._submit(work, done)

    def children(
        self,
        path: str,
        watch: Watch | None,
        done: Callable[[tuple[str, ...] | RegistryAway | None], None],
    ) -> None:
        """Fetch the names below a node, None if it is missing; `watch` fires when that changes."""

        def work(worker: _Worker, database: Database) -> tuple[str, ...] | None:
            worker.watch(Database.children_state, path, watch)
            return worker.still_ours(database.names(path))

        self._submit(work, done)

    def multi(self, steps: Sequence[Step], done: Callable[[MultiResult], None]) -> None:
        """Do all steps or none; at least one."""

        def work(worker: _Worker, database: Database) -> MultiResult:
            return worker.write(database, steps)

        self._submit(work, done)

    def restart(self, reason: str) -> None:
        """Give the session up, if there is one, and try anew after a while: it is of no use."""
        if self._connection:
            log.error("giving the session up: %s", reason, extra={"event": "registry_restart"})
            self._worker.restart(self._connection)
            self._turned(self._connection, SessionState.LOST, reason)

    def close(self) -> None:
        """End the session; nothing is called any more."""
        self._closed = True
        self._connection = 0
        self._outstanding.clear()
        self._worker.close()

    # --- what the thread tells, in the owner's loop -----------------------------------------------

    def hand(self, call: Callable[[], None]) -> None:
        """From any thread: run `call` in the owner's loop unless closed by then."""
        if not self._closed:
            self._post(lambda: None if self._closed else call())

    def tell_connected(self, connection: int, session: int) -> None:
        """From the thread: it works, in this session."""
        self.hand(partial(self._connected, connection, session))

    def tell_away(self, connection: int, state: SessionState, why: str) -> None:
        """From the thread: this connection works no more."""
        self.hand(partial(self._turned, connection, state, why))

    def tell_answer(self, number: int, result: object) -> None:
        """From the thread: what came of a request."""
        self.hand(partial(self._answered, number, result))

    def tell_fired(self, connection: int, watch: Watch) -> None:
        """From the thread: what is watched has changed."""
        self.hand(lambda: watch() if connection == self._connection else None)

    def _connected(self, connection: int, session: int) -> None:
        self._connection, self._session = connection, session
        self._tell(SessionState.CONNECTED)

    def _turned(self, connection: int, state: SessionState, why: str) -> None:
        self._why = why
        if self._connection == connection:
            self._connection = 0
            outstanding, self._outstanding = self._outstanding, {}
            for done in outstanding.values():
                done(self._away())
        self._tell(state)

    def _answered(self, number: int, result: object) -> None:
        done = self._outstanding.pop(number, None)
        if done is not None:
            done(result)

    def _tell(self, state: SessionState) -> None:
        if self._on_session is not None:
            self._on_session(state)

    def _submit(self, work: Work, done: Callable[[Result], None]) -> None:
        settle = cast("Callable[[object], None]", done)
        if not self._connection:
            self.hand(partial(settle, self._away()))
        elif len(self._outstanding) >= REQUESTS_WAITING_MAX:
            text = f"{REQUESTS_WAITING_MAX} requests wait for the registry {self._path} already"
            self.hand(partial(settle, RegistryAway(text)))
        else:
            self._calls += 1
            self._outstanding[self._calls] = settle
            self._worker.ask(_Task(self._connection, self._calls, work))

    def _away(self) -> RegistryAway:
        return RegistryAway(f"the registry {self._path} cannot be used: {self._why}")


@dataclass(frozen=True, slots=True)
class _Task:
    connection: int
    """It concerns no other one."""
    number: int
    work: Work


@dataclass(slots=True)
class _Seen:
    """What another session has shown."""

    place: int
    silent: float = 0.0
    """Seconds for which this process has looked and seen no beat."""


class _Lost(Exception):
    """The connection is of no use.

    Attributes:
        session_ended: the session is gone as well.
    """

    def __init__(self, why: str, *, session_ended: bool = False) -> None:
        super().__init__(why)
        self.session_ended = session_ended


class _Worker:
    """The thread, and all that it owns.

    Args:
        path: of the file.
        session_seconds: how long the others wait for this process.
        store: whom it tells.
    """

    def __init__(self, path: Path, session_seconds: float, store: FileStore) -> None:
        self._path = path
        self._session_seconds = max(session_seconds, SILENT_SECONDS_MIN)
        self._store = store
        self._database: Database | None = None
        try:
            self._database = Database(path)
        except RegistryAway as away:
            log.warning("%s; trying again", away, extra={"event": "registry_error"})
        self._tasks: deque[_Task] = deque()
        self._restart = 0
        self._closing = False
        self._connections = 0
        self._connected = False
        self._session = 0
        self._age = 0
        self._wrote = False
        self._watches: dict[Watched, State | None] = {}
        self._others: list[Session] = []
        self._seen: dict[int, _Seen] = {}
        self._looked = 0.0
        self._due = 0.0
        self._removed_at: float | None = None
        self._said = ""
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = select.poll()
        self._poller.register(self._bell, select.POLLIN)
        self._ear: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="roq-registry", daemon=True)

    # --- called by the owner's thread -------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self, task: _Task) -> None:
        """Do something in this connection."""
        self._tasks.append(task)
        os.eventfd_write(self._bell, 1)

    def restart(self, connection: int) -> None:
        """End the session of this connection, and begin another one after a while."""
        self._restart = connection
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """End the session and the thread; waits for `CLOSE_SECONDS` at most."""
        if self._closing:
            return
        self._closing = True
        if self._thread.is_alive():
            os.eventfd_write(self._bell, 1)
            self._thread.join(CLOSE_SECONDS)
        else:
            self._end()
        if not self._thread.is_alive():
            os.close(self._bell)

    # --- what is asked ----------------------------------------------------------------------------

    def watch(
        self, state: Callable[[Database, str], State | None], path: str, watch: Watch | None
    ) -> None:
        """Remember how this is now, to notice when it is different; before it is read."""
        if watch is not None and self._database is not None:
            self._watches[state, path, watch] = state(self._database, path)

    def still_ours(self, found: Result) -> Result:
        """Give back what was read: nobody sees that his session has ended before he is told."""
        if self._database is None or not self._database.lives(self._session):
            raise SessionGone
        return found

    def write(self, database: Database, steps: Sequence[Step]) -> MultiResult:
        """Do all steps or none, in the file that others see."""
        self._see_place(database)
        done = database.transact(self._session, steps)
        self._wrote = True
        return done

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - raised where it ends the process
            self._store.hand(partial(_raise, error))
        finally:
            self._end()

    def _turn(self) -> None:
        if not self._tasks:
            self._hear(max(0.0, self._due - time.monotonic()))
        try:
            if self._restart:
                self._give_up()
            for _ in range(min(len(self._tasks), _TASKS_AT_ONCE)):
                self._perform(self._tasks.popleft())
            if self._wrote or time.monotonic() >= self._due:
                self._look()
        except _Lost as lost:
            self._lose(str(lost), session_ended=lost.session_ended)
        except SessionGone:
            self._lose("this process was silent for too long", session_ended=True)
        except sqlite3.Error as error:
            self._lose(str(error))
        except OSError as error:
            self._lose(error.strerror or str(error))

    def _hear(self, seconds: float) -> None:
        """Wait until something is asked, or another process tells that it has changed something."""
        for file, _ in self._poller.poll(seconds * 1000 + 1):
            if file == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
                continue
            self._due = min(self._due, self._looked + TOLD_SECONDS)
            with contextlib.suppress(OSError):
                for _ in range(_DATAGRAMS_MAX):
                    if self._ear is not None:
                        self._ear.recv(1)

    def _perform(self, task: _Task) -> None:
        if not self._connected or task.connection != self._connections or self._database is None:
            return  # answered when that connection went
        self._store.tell_answer(task.number, task.work(self, self._database))

    def _look(self) -> None:
        now = time.monotonic()
        gap, self._looked, self._due = now - self._looked, now, now + LOOK_SECONDS
        if self._database is not None:
            self._database.locks.beat()
        if not self._connected:
            self._connect(now)
            return
        database = cast("Database", self._database)
        self._see_place(database)
        self._notice(database)
        self._end_the_dead(database, min(gap, 2 * LOOK_SECONDS))

    def _see_place(self, database: Database) -> None:
        place = database.place()
        if place is not Place.SAME:
            raise _Lost(place.value)

    def _notice(self, database: Database) -> None:
        """See what others and this process have changed since the last time."""
        age = database.age()
        if age == self._age and not self._wrote:
            return
        wrote, self._wrote, self._age = self._wrote, False, age
        changed = [
            watched
            for watched, before in self._watches.items()
            if watched[0](database, watched[1]) != before
        ]
        self.still_ours(None)
        self._others = [each for each in database.sessions() if each.id != self._session]
        if wrote:
            self._tell_others(database)
        for watched in changed:
            del self._watches[watched]
            self._store.tell_fired(self._connections, watched[2])

    # --- other sessions ---------------------------------------------------------------------------

    def _end_the_dead(self, database: Database, gap: float) -> None:
        dead: list[int] = []
        seen, self._seen = self._seen, {}
        for other in self._others:
            place = database.locks.place(other.id)
            known = seen.get(other.id)
            if place is None:
                dead.append(other.id)
            elif known is None or known.place != place:
                self._seen[other.id] = _Seen(place)
            else:
                known.silent += gap
                self._seen[other.id] = known
                if known.silent > other.seconds:
                    dead.append(other.id)
                    log.warning(
                        "a process has been silent for %.1f s, its session is ended", known.silent,
                        extra={"event": "session_silent"},
                    )  # fmt: skip
        if dead:
            database.end(dead)
            self._wrote = True
            self._notice(database)

    def _tell_others(self, database: Database) -> None:
        ear = self._ear
        if ear is None:
            return
        for other in self._others:
            with contextlib.suppress(OSError):  # gone, or elsewhere, or has much to hear already
                ear.sendto(b"", _name(database, other.id))

    def _listen(self, database: Database) -> None:
        self._hush()
        ear = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        with contextlib.suppress(OSError):  # without it each change is seen at the next look
            ear.bind(_name(database, self._session))
        self._ear = ear
        self._poller.register(ear, select.POLLIN)

    def _hush(self) -> None:
        if self._ear is not None:
            self._poller.unregister(self._ear)
            self._ear.close()
            self._ear = None

    # --- the connection ---------------------------------------------------------------------------

    def _connect(self, now: float) -> None:
        """Go on where it was, or begin anew."""
        if self._database is not None:
            place = self._database.place()
            if place is Place.HIDDEN:
                return
            if place is Place.REMOVED:
                if self._removed_at is None:
                    self._removed_at = now
                if now - self._removed_at < REMAKE_SECONDS:
                    return
            if place is not Place.SAME:
                self._drop(place.value)
        self._removed_at = None
        try:
            database = self._database = self._database or Database(self._path)
        except (ConfigError, RegistryAway) as error:
            self._say(str(error))
            return
        if self._session:
            database.probe(self._session)
        else:
            self._session = database.begin(self._session_seconds)
            self._listen(database)
        self._connections += 1
        self._connected, self._wrote, self._said = True, True, ""
        self._watches.clear()
        self._store.tell_connected(self._connections, self._session)
        self._notice(database)
        self._end_the_dead(database, 0.0)

    def _lose(self, why: str, *, session_ended: bool = False) -> None:
        self._say(f"the registry {self._path} cannot be used: {why}")
        if self._connected:
            self._connected, self._wrote = False, False
            self._tell(SessionState.SUSPENDED, why)
        if session_ended:
            self._forget(why)

    def _drop(self, why: str) -> None:
        """What is open here is not what others open."""
        if self._database is not None:
            self._database.close()
            self._database = None
        self._forget(why)

    def _give_up(self) -> None:
        connection, self._restart = self._restart, 0
        if not self._connected or connection != self._connections or self._database is None:
            return
        self._connected = False
        self._due = time.monotonic() + LOOK_SECONDS
        self._database.end([self._session])
        self._forget("it was given up")

    def _forget(self, why: str) -> None:
        """The session has ended."""
        if self._database is not None:
            self._database.locks.release()
        self._hush()
        self._seen.clear()
        if self._session:
            self._session = 0
            self._tell(SessionState.LOST, why)

    def _tell(self, state: SessionState, why: str) -> None:
        self._store.tell_away(self._connections, state, why)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            log.warning("%s; trying again", text, extra={"event": "registry_error"})

    def _end(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            with contextlib.suppress(sqlite3.Error, OSError):
                if self._session and database.place() is Place.SAME:
                    database.end([self._session])
                    self._tell_others(database)
            database.close()
        self._hush()


def _name(database: Database, session: int) -> str:
    """Where the process of a session hears of changes: a name without a file."""
    return f"\0roq-registry-{database.address}-{session}"


def _raise(error: BaseException) -> None:
    raise error


class FileRegistry(StoreRegistry):
    """The registry of a cluster in a file, for processes of one machine.

    Args:
        path: of the file; made if missing. SQLite puts two others beside it, and RoQ one.
        post: runs a function in the owner's loop (`Reactor.call_soon`).
        session_seconds: how long the others wait for a process that is there and does nothing;
            two seconds at least.

    Raises:
        ConfigError: it can be no registry, or not from here; says why.
    """

    def __init__(
        self, path: Path | str, post: Post, *, session_seconds: float = SESSION_SECONDS
    ) -> None:
        super().__init__(FileStore(Path(path).absolute(), post, session_seconds), post)
