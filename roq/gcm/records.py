"""What the leader writes into the registry, as readable JSON, so that a later leader can go on.

    /queues/<name>                definition, state and last known addresses: `QueueRecord`
    /queues/<name>/rules          scaling rules: the fields of command 2006
    /queues/<name>/transactions   the last TransactionIDs with the exchange each one made

A definition stands there before anything of it is started (state `creating`, `starting`, …), so
nothing runs of which the registry does not know.
"""

from __future__ import annotations

from typing import Final

import msgspec

from roq.errors import ConfigError
from roq.model import Limits, QueueState
from roq.protocol.public import SetRules

QUEUES: Final = "/queues"
MANUAL: Final = "manual"
SCALING: Final = "scaling"
TRANSACTIONS_MAX: Final = 1_000
"""TransactionIDs that are remembered per queue."""


class Manager(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration manager, as it presents itself to the others."""

    id: str
    """Unique for each process."""
    client: str
    management: str
    broadcast: str


class ExchangeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange of a queue."""

    number: int
    host: str
    state: str = "creating"
    """`creating` until it has run for the first time, then `created`; `removing` at the end."""
    transaction: str = ""
    """TransactionID of the request that is making it."""
    origin: str = MANUAL
    """`manual`, or `scaling` if it was added because of the load: then it goes by itself, too."""
    data: str = ""
    live: str = ""
    epoch: int = 0

    @property
    def wanted(self) -> bool:
        """Whether it is to run when its queue does."""
        return self.state != "removing"


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One logical queue."""

    name: str
    queue_id: bytes
    state: QueueState
    host: str
    """Where the monitor runs."""
    created: float
    """Seconds since 1970."""
    durability: str = "none"
    limits: Limits = Limits()
    monitor: str = ""
    statistics: str = ""
    next_number: int = 1
    exchanges: tuple[ExchangeRecord, ...] = ()

    def exchange(self, number: int) -> ExchangeRecord | None:
        """The exchange of this number, if there is one."""
        return next((record for record in self.exchanges if record.number == number), None)

    def replacing(self, changed: ExchangeRecord) -> QueueRecord:
        """The record with this exchange in the place of the one with its number."""
        return msgspec.structs.replace(
            self,
            exchanges=tuple(
                changed if record.number == changed.number else record for record in self.exchanges
            ),
        )

    @property
    def hosts(self) -> list[str]:
        """Everywhere something of this queue belongs, the monitor's host first."""
        return list(dict.fromkeys([self.host, *(record.host for record in self.exchanges)]))


Transactions = tuple[tuple[str, int], ...]
"""(TransactionID, number of the exchange), the oldest first."""


class Snapshot(msgspec.Struct, frozen=True):
    """The definitions that stand in the registry."""

    queues: tuple[QueueRecord, ...] = ()
    rules: dict[str, SetRules] = {}
    transactions: dict[str, Transactions] = {}


def queue_path(name: str) -> str:
    """Where the definition of a queue stands."""
    return f"{QUEUES}/{name}"


def rules_path(name: str) -> str:
    """Where the rules of a queue stand."""
    return f"{QUEUES}/{name}/rules"


def transactions_path(name: str) -> str:
    """Where the TransactionIDs of a queue stand."""
    return f"{QUEUES}/{name}/transactions"


def encode(document: msgspec.Struct | Transactions) -> bytes:
    """The JSON of a document."""
    return msgspec.json.encode(document)


def decode_manager(data: bytes) -> Manager | None:
    """Who a manager is, None if it cannot be read (another version wrote it)."""
    try:
        return msgspec.json.decode(data, type=Manager)
    except msgspec.MsgspecError:
        return None


def decode_snapshot(documents: dict[str, bytes]) -> Snapshot:
    """The definitions out of the documents below `/queues`, by path.

    Raises:
        ConfigError: a document cannot be read; the text names it. Going on without it would start
            a second queue of that name.
    """
    queues: list[QueueRecord] = []
    rules: dict[str, SetRules] = {}
    transactions: dict[str, Transactions] = {}
    for path, data in sorted(documents.items()):
        _, _, name, *rest = path.split("/")
        try:
            match rest:
                case []:
                    queues.append(msgspec.json.decode(data, type=QueueRecord))
                case ["rules"]:
                    rules[name] = msgspec.json.decode(data, type=SetRules)
                case ["transactions"]:
                    transactions[name] = msgspec.json.decode(data, type=Transactions)
                case _:
                    continue  # written by a later version
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"the registry holds an unreadable document {path}: {error}. "
                "It was not written by this version of RoQ"
            ) from None
    return Snapshot(tuple(queues), rules, transactions)
