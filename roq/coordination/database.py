"""The nodes and sessions of a registry in one SQLite file, as one thread of one process sees them.

    PATH        nodes, sessions and two counters; write-ahead log, and each commit is on the disk
    PATH-wal    what is committed and not yet in PATH; with PATH-shm it is SQLite's own
    PATH.lock   which sessions live (`session_locks.py`), and which of these files belong together

The file is made complete under another name and then renamed, so nobody ever finds half of it.
SQLite itself would take the write-ahead log of a file that was removed or replaced for that of the
new one, and so damage it. Therefore it is opened under a lock, and what is left of another file is
removed first.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from roq.coordination.registry_contract import (
    ANY_VERSION,
    Committed,
    Create,
    Delete,
    Node,
    Reason,
    Set,
)
from roq.coordination.session_locks import SESSION_MAX, SessionLocks
from roq.coordination.store_contract import Check, CreateNext, Refused, Step
from roq.errors import ConfigError, RegistryAway

FORMAT: Final = 1
APPLICATION: Final = 0x526F5152
"""Says in a SQLite file whose it is: `RoQR`."""
BUSY_SECONDS: Final = 2.0
"""So long another process may take for a transaction."""
_SIDES: Final = ("-wal", "-shm")
_MACHINE: Final = Path("/etc/machine-id")
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NO_PERMISSION: Final = {"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"}

_SCHEMA: Final = """\
CREATE TABLE nodes (
    path TEXT NOT NULL PRIMARY KEY,
    parent TEXT,
    data BLOB NOT NULL,
    version INTEGER NOT NULL DEFAULT 0,
    owner INTEGER NOT NULL DEFAULT 0,    -- the session that it ends with; 0: none
    made INTEGER NOT NULL,               -- number of the transaction that has made it
    changed INTEGER NOT NULL,            -- … and of the one that has changed it last
    children INTEGER NOT NULL DEFAULT 0  -- how often a child was made or deleted
);
CREATE INDEX below ON nodes (parent);
CREATE INDEX owned ON nodes (owner) WHERE owner != 0;
CREATE TABLE sessions (
    id INTEGER NOT NULL PRIMARY KEY,
    seconds REAL NOT NULL,               -- so long its process may be silent
    boot TEXT NOT NULL,
    machine TEXT NOT NULL,
    name TEXT NOT NULL                   -- of the machine, for people
);
CREATE TABLE counters (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO counters VALUES ('transaction', 0), ('session', 0);
INSERT INTO nodes (path, data, made, changed) VALUES ('', x'', 0, 0);
-- What is set by hand is seen by those who watch, and refuses who expects another version.
CREATE TRIGGER by_hand AFTER UPDATE OF data ON nodes WHEN new.changed = old.changed BEGIN
    UPDATE counters SET value = value + 1 WHERE name = 'transaction';
    UPDATE nodes SET version = version + 1,
        changed = (SELECT value FROM counters WHERE name = 'transaction') WHERE path = new.path;
END;
"""

State = tuple[int, int]
"""What is different once a node, or what is below it, has changed."""


class Place(StrEnum):
    """What is where the file was opened."""

    SAME = "as it was"
    REMOVED = "it was removed"
    REPLACED = "another file is in its place"
    HIDDEN = "its folder cannot be reached"


class SessionGone(Exception):
    """Other processes have ended this session, since its process was silent for too long."""


class _Refusal(Exception):
    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Session(NamedTuple):
    """One row of the sessions."""

    id: int
    seconds: float


def machine() -> tuple[str, str]:
    """What tells this start of this machine from others, and this machine from others."""
    return _text(_BOOT), _text(_MACHINE)


class Database:
    """One connection to the file; used by one thread at a time.

    Args:
        path: of the file; made if missing.

    Raises:
        ConfigError: it can be no registry, or not from here; says why and what to do.
        RegistryAway: it cannot be opened at the moment.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_folder(path)
        try:
            self.locks = SessionLocks(path.with_name(f"{path.name}.lock"))
        except OSError as error:
            raise ConfigError(
                f"the registry {path} cannot be used: {path.name}.lock cannot be written beside "
                f"it ({error.strerror}): name a folder that this process may write to"
            ) from None
        try:
            with self.locks.guard():
                self._connection = self._open()
                self._stat = path.stat()
                self._note_files()
        except BaseException as error:
            self.locks.close()
            if isinstance(error, sqlite3.Error):
                raise _refusal(path, error) from None
            if isinstance(error, OSError):
                raise RegistryAway(f"the registry {path}: {error.strerror}") from None
            raise

    # --- opening ----------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        path = self.path
        if not path.exists():
            self._remove_sides()
            self._make()
        elif path.is_file():
            former, _, wal = self.locks.record.partition(" ")
            if former != _number(path) and wal == _number(_side(path, _SIDES[0])) != "":
                self._remove_sides()
        else:
            raise ConfigError(f"the registry {path} is no file: name one, or where one can be made")
        connection = connect(path)
        try:
            self._check(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _remove_sides(self) -> None:
        """Those of a file that is there no more."""
        for end in _SIDES:
            _side(self.path, end).unlink(missing_ok=True)

    def _make(self) -> None:
        unfinished = self.path.with_name(f"{self.path.name}.new")
        for name in (unfinished, *(_side(unfinished, end) for end in _SIDES)):
            name.unlink(missing_ok=True)
        unfinished.touch(0o644)
        made = connect(unfinished)
        try:
            made.execute("PRAGMA journal_mode = WAL")
            # A session of a file that was lost may be remembered: its number must not come again.
            first = secrets.randbelow(SESSION_MAX // 2)
            made.executescript(_SCHEMA)
            made.execute("UPDATE counters SET value = ? WHERE name = 'session'", (first,))
            made.execute(f"PRAGMA application_id = {APPLICATION}")
            made.execute(f"PRAGMA user_version = {FORMAT}")
        finally:
            made.close()
        unfinished.rename(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _check(self, connection: sqlite3.Connection) -> None:
        path = self.path
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise ConfigError(
                f"{path} is a SQLite database of another program and no registry: name another file"
            )
        if version != FORMAT:
            raise ConfigError(
                f"the registry {path} has format {version}, and this version of RoQ knows format "
                f"{FORMAT} only: use the version of RoQ that has made it, or begin with a new file"
            )
        boot, here = machine()
        others = {
            str(name) or "without a name"
            for other_boot, other, name in connection.execute(
                "SELECT boot, machine, name FROM sessions"
            )
            if other_boot != boot and other != here
        }
        if others:
            raise ConfigError(
                f"the registry {path} is in use by another machine ({', '.join(sorted(others))}): "  # noqa: S608 - words for people
                "all processes of a cluster with a file must run on one. If they do not run there "
                "any more, remove what is left of them: sqlite3 FILE 'DELETE FROM sessions'"
            )
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE counters SET value = value")  # whether it can be written to
        connection.execute("ROLLBACK")

    def _note_files(self) -> None:
        self.locks.record = f"{_number(self.path)} {_number(_side(self.path, _SIDES[0]))}"

    # --- how it stands ----------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """What tells this file from all others of this machine."""
        return f"{self._stat.st_dev:x}-{self._stat.st_ino:x}"

    def place(self) -> Place:
        """Whether others that open the registry now find the same one."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return Place.REMOVED if self.path.parent.is_dir() else Place.HIDDEN
        except OSError:
            return Place.HIDDEN
        same = os.path.samestat(found, self._stat) and self.locks.stands
        return Place.SAME if same else Place.REPLACED

    def age(self) -> int:
        """Another number whenever another connection has written something."""
        return self._number("PRAGMA data_version")

    def close(self) -> None:
        """Give back everything; a session that was not ended ends with it."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()
        self.locks.close()

    # --- sessions ---------------------------------------------------------------------------------

    def begin(self, seconds: float) -> int:
        """Begin a session, which ends when the process does or is silent for so long."""
        boot, here = machine()
        with self._transaction():
            session = self._count("session") % SESSION_MAX + 1
            self.locks.hold(session)
            self._connection.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?)",
                (session, seconds, boot, here, socket.gethostname()),
            )
        return session

    def end(self, sessions: Iterable[int]) -> None:
        """End sessions: what lives with one that there is not vanishes."""
        with self._transaction():
            self._connection.executemany(
                "DELETE FROM sessions WHERE id = ?", [(each,) for each in sessions]
            )
            owned = self._connection.execute(
                "SELECT path, parent FROM nodes"
                " WHERE owner != 0 AND owner NOT IN (SELECT id FROM sessions)"
            ).fetchall()
            for path, parent in owned:
                self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
                self._touch(parent)

    def probe(self, session: int) -> None:
        """See that the session is there, and that something can be written.

        Raises:
            SessionGone: it is not.
        """
        with self._transaction():
            self._demand(session)
            self._count("transaction")

    def lives(self, session: int) -> bool:
        """Whether nobody has ended the session."""
        found = self._connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,))
        return found.fetchone() is not None

    def sessions(self) -> list[Session]:
        """All that nobody has ended."""
        rows = self._connection.execute("SELECT id, CAST(seconds AS REAL) FROM sessions")
        return [Session(*row) for row in rows]

    # --- nodes ------------------------------------------------------------------------------------

    def node(self, path: str) -> Node | None:
        """The node at a path."""
        row = self._connection.execute(
            "SELECT CAST(data AS BLOB), CAST(version AS INTEGER), CAST(owner AS INTEGER)"
            " FROM nodes WHERE path = ?",
            (path,),
        ).fetchone()
        return None if row is None else Node(path, row[0], row[1], row[2])

    def names(self, path: str) -> tuple[str, ...] | None:
        """The names below a path, None if it is missing."""
        rows = self._connection.execute(
            "SELECT CAST(path AS TEXT) FROM nodes WHERE parent = ? ORDER BY path", (path,)
        ).fetchall()
        if not rows and self.data_state(path) is None:
            return None
        return tuple(found[len(path) + 1 :] for (found,) in rows)

    def data_state(self, path: str) -> State | None:
        """Changes with the data of a node; None if it is missing."""
        return self._state("changed", path)

    def children_state(self, path: str) -> State | None:
        """Changes with what is directly below a node; None if it is missing."""
        return self._state("children", path)

    def transact(self, session: int, steps: Sequence[Step]) -> Committed | Refused:
        """Do all steps or none.

        Raises:
            SessionGone: the session has ended, so nothing was done.
        """
        index, versions = 0, []
        try:
            with self._transaction():
                self._demand(session)
                number = self._count("transaction")
                for index, step in enumerate(steps):  # noqa: B007 - also used when one is refused
                    versions.append(self._step(session, step, number))
        except _Refusal as refusal:
            return Refused(index, refusal.reason)
        return Committed(tuple(versions))

    def _step(self, session: int, step: Step, number: int) -> int:
        match step:
            case Create(path=path, data=data, ephemeral=ephemeral):
                return self._create(path, data, session if ephemeral else 0, number)
            case CreateNext(path=path, data=data):
                state = self.children_state(_parent(path))
                count = state[1] if state is not None else 0
                return self._create(f"{path}{count:010d}", data, session, number)
            case Set(path=path, data=data, version=version):
                found = self._existing(path, version)
                # Another one than that of the step which has made it: else it is set by hand.
                number = self._count("transaction")
                self._connection.execute(
                    "UPDATE nodes SET data = ?, version = ?, changed = ? WHERE path = ?",
                    (data, found + 1, number, path),
                )
                return found + 1
            case Delete(path=path, version=version):
                self._existing(path, version)
                if self.names(path):
                    raise _Refusal(Reason.NOT_EMPTY)
                self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
                self._touch(_parent(path))
                return ANY_VERSION
            case Check(path=path, version=version):
                return self._existing(path, version)

    def _create(self, path: str, data: bytes, owner: int, number: int) -> int:
        parent = _parent(path)
        above = self.node(parent)
        if above is None or above.owner:
            raise _Refusal(Reason.MISSING)
        if self.data_state(path) is not None:
            raise _Refusal(Reason.EXISTS)
        self._connection.execute(
            "INSERT INTO nodes (path, parent, data, owner, made, changed)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (path, parent, data, owner, number, number),
        )
        self._touch(parent)
        return 0

    def _existing(self, path: str, version: int) -> int:
        found = self.node(path)
        if found is None:
            raise _Refusal(Reason.MISSING)
        if version not in {ANY_VERSION, found.version}:
            raise _Refusal(Reason.VERSION)
        return found.version

    def _touch(self, parent: str) -> None:
        self._connection.execute(
            "UPDATE nodes SET children = children + 1 WHERE path = ?", (parent,)
        )

    def _state(self, column: str, path: str) -> State | None:
        query = f"SELECT CAST(made AS INTEGER), CAST({column} AS INTEGER) FROM nodes WHERE path = ?"  # noqa: S608 - the column is one of ours
        found: State | None = self._connection.execute(query, (path,)).fetchone()
        return found

    # --- transactions -----------------------------------------------------------------------------

    def _demand(self, session: int) -> None:
        if not self.lives(session):
            raise SessionGone

    def _count(self, name: str) -> int:
        self._connection.execute("UPDATE counters SET value = value + 1 WHERE name = ?", (name,))
        found = self._connection.execute(
            "SELECT CAST(value AS INTEGER) FROM counters WHERE name = ?", (name,)
        )
        row: tuple[int] | None = found.fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"its counter of the kind {name} is missing")
        return row[0]

    def _number(self, query: str) -> int:
        (value,) = self._connection.execute(query).fetchone()
        return int(value)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            raise


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a file that exists."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # opened where mistakes can be told, used by one thread
    )
    connection.text_factory = _decoded
    try:
        connection.execute("PRAGMA synchronous = FULL")  # what was told as done stays done
    except BaseException:
        connection.close()
        raise
    return connection


def _check_folder(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"the registry {path}: there is no folder {folder}: make it, or correct "
                          "the path")  # fmt: skip
    kind = shared_file_system(folder.resolve())
    if kind:
        raise ConfigError(
            f"the registry {path} would lie on a file system that other machines may use, too "
            f"({kind}): its locks hold on one machine only. Name a file on a local disk, or use "
            "ZooKeeper for a cluster of several machines"
        )


def _refusal(path: Path, error: sqlite3.Error) -> ConfigError | RegistryAway:
    """What a file that cannot be opened means."""
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_NOTADB":
        return ConfigError(f"{path} is no SQLite database and so no registry: name another file")
    if any(name.startswith(each) for each in _NO_PERMISSION):
        return ConfigError(
            f"the registry {path} cannot be written to ({error}): give this process the right to "
            "write the file and its folder"
        )
    return RegistryAway(f"the registry {path}: {error}")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _side(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _number(path: Path) -> str:
    """Of the file at this path, among those of its file system; empty if there is none."""
    try:
        return str(path.stat().st_ino)
    except OSError:
        return ""


def _decoded(text: bytes) -> str:
    """What others have written may be no UTF-8."""
    return text.decode(errors="replace")


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


# On which kind of file system a folder is: one that several machines share holds no registry.

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph", "9p", "virtiofs",
     "vboxsf", "vmhgfs", "prl_fs", "davfs", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2",
     "glusterfs", "ocfs2", "gfs2"}
)  # fmt: skip
_FUSE: Final = "fuse."
"""Of these nobody but the program behind them knows where the files are."""
_LOCAL_FUSE: Final = frozenset({"fuse.fuse-overlayfs"})
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def shared_file_system(folder: Path, mounts: str | None = None) -> str:
    """The kind of the file system if other machines may see its files, too; empty if not.

    Args:
        folder: an absolute path without links.
        mounts: as in /proc/self/mountinfo, which is read if this is None.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:  # no /proc: nothing is known
            return ""
    kind, longest = "", -1
    for line in mounts.splitlines():
        mount, _, rest = line.partition(" - ")
        fields = mount.split(" ")
        if len(fields) < 5 or not rest:
            continue
        point = Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4]))
        depth = len(point.parts)
        # A later line lies above an earlier one of the same place.
        if depth >= longest and (point == folder or point in folder.parents):
            kind, longest = rest.split(" ")[0], depth
    shared = kind in _SHARED or (kind.startswith(_FUSE) and kind not in _LOCAL_FUSE)
    return kind if shared else ""
