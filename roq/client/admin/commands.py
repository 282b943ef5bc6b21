"""What a cluster is told about its hosts: nothing new there, nothing there at all, forget it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from roq.errors import Interrupted, InvalidRequest, QueueExists, RegistryAway, Unavailable
from roq.model import Limits, check_name, wait_seconds
from roq.protocol.defined_services import checked_services
from roq.protocol.documents import RawDocument
from roq.protocol.public import check_host, check_limit
from roq.protocol.public_answers import QueueDescription

HOST_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 0.5


class HostCommands(ABC):
    """Each may be repeated, and is, if a manager dies before it has answered."""

    def cordon_host(self, host: str, *, timeout: float = HOST_SECONDS) -> None:
        """Have nothing new placed on a host; what is there stays."""
        self._tell(2110, host, timeout)

    def uncordon_host(self, host: str, *, timeout: float = HOST_SECONDS) -> None:
        """Have a host take what is placed again; takes `cordon_host` and `drain_host` back."""
        self._tell(2111, host, timeout)

    def drain_host(self, host: str, *, timeout: float = HOST_SECONDS) -> None:
        """Cordon a host and have everything on it go elsewhere, but for what is kept in logs.

        Who subscribes or is a member of a group by then loses no message. The logs of durable
        queues on that host are removed: what was read, and what nobody has asked for yet, is gone
        with them.

        Returns as soon as that is noted; it is done by the cluster, whichever manager leads it.
        `hosts()` tells how far it is: `left` names what is still there, `stuck` says why it cannot
        go.
        """
        self._tell(2112, host, timeout)

    def remove_host(self, host: str, *, force: bool = False, timeout: float = HOST_SECONDS) -> None:
        """Forget a host that is gone.

        Args:
            host: its name.
            force: its machine is gone for good, though processes on it seem to live or queues have
                something there: that is lost, and set up again elsewhere.
            timeout: seconds.

        Raises:
            HostNotFound: nothing is known of it.
            RequestError: its manager reports, or something belongs there.
        """
        self._tell(2113, host, timeout, **({"Force": True} if force else {}))

    def _tell(self, number: int, host: str, timeout: float, **fields: object) -> None:
        if not isinstance(host, str):
            raise InvalidRequest(f"a host is named by its address, not by {host!r:.40}")
        document: RawDocument = {"CMD": number, "Host": check_host(host), **fields}
        deadline = self._now() + wait_seconds(timeout)
        while True:
            try:
                self._ask(document, max(AGAIN_SECONDS, deadline - self._now()))
            except (Unavailable, Interrupted, RegistryAway):
                if self._now() + AGAIN_SECONDS >= deadline:
                    raise
                self._pause(AGAIN_SECONDS)
            else:
                return

    @abstractmethod
    def _ask(self, document: RawDocument, timeout: float | None = None) -> RawDocument: ...

    @abstractmethod
    def _now(self) -> float: ...

    @abstractmethod
    def _pause(self, seconds: float) -> None: ...


# The documents of management commands.


def request(command: int, **fields: object) -> RawDocument:
    """A management command."""
    return {"CMD": command, **fields}


def create_request(
    name: str,
    host: str | None,
    durability: str | None,
    limits: Limits | Mapping[str, int] | None,
    services: Mapping[str, Mapping[str, float]] | None = None,
) -> RawDocument:
    """Command 2010, or 2003 if a host is named."""
    # The same request repeated to a later leader finds what it has made.
    transaction = os.urandom(16).hex()
    fields: RawDocument = {
        "QName": check_name(name),
        "TransactionID": transaction,
    }
    if durability is not None:
        fields["Durability"] = durability
    given = changed_limits(limits)
    if given:
        fields["Limits"] = given
    if services:
        fields["Services"] = checked_services(services)
    if host is None:
        return request(2010, **fields)
    return request(2003, Host=host, **fields)


def check_existing(
    name: str,
    durability: str | None,
    limits: Limits | Mapping[str, int] | None,
    describe: Callable[[str], QueueDescription],
) -> None:
    """See whether a queue that exists will do for one that was asked for.

    Args:
        name: of the queue.
        durability: that was asked for; None: any.
        limits: those that were asked for.
        describe: asks about a queue; called if something was asked for that no queue ever gets.

    Raises:
        QueueExists: it has another durability, or is not ordered as it was to be.
    """
    ordered = bool(changed_limits(limits).get("ordered"))
    if durability is None and not ordered:
        return
    there = describe(name)
    if durability not in {None, there.durability}:
        has, wanted = f"with durability {there.durability}", f"with {durability}"
    elif ordered and not there.limits.ordered:
        has, wanted = "and is not ordered", "that is"
    else:
        return
    raise QueueExists(
        f"queue {name!r} exists already {has}, and stays so: create another one {wanted}, or "
        f"remove this one first with all that is in it (`roq queue remove {name}`)"
    )


def exchange_request(queue: str, host: str | None, transaction_id: str | None) -> RawDocument:
    """Command 2004."""
    transaction = transaction_id if transaction_id is not None else os.urandom(16).hex()
    fields = {"QName": check_name(queue), "TransactionID": transaction}
    return request(2004, Host=host or "", **fields)


def changed_limits(limits: Limits | Mapping[str, int] | None) -> dict[str, int]:
    """The limits that differ from the defaults.

    Raises:
        InvalidRequest: no limits, one that there is not, or a number that it cannot have.
    """
    if limits is None:
        return {}
    if not isinstance(limits, Limits):
        if not isinstance(limits, Mapping):
            raise InvalidRequest(
                "limits are roq.Limits, or numbers by the names that these have there, "
                f"not {limits!r:.40}"
            )
        for name, value in limits.items():
            check_limit(name, value)
        return dict(limits)
    defaults: dict[str, int] = msgspec.structs.asdict(Limits())
    given: dict[str, int] = msgspec.structs.asdict(limits)
    return {name: value for name, value in given.items() if value != defaults[name]}
