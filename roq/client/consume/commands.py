"""What an operator does with the consumer groups of a queue, as methods of `roq.Cluster`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from time import time

from roq.client.consume import groups as consumer_groups
from roq.client.consume.consumer import start_of
from roq.client.consume.groups import GroupListing
from roq.client.io.engine import Engine
from roq.model import check_name
from roq.protocol.public_answers import QueueDescription


class GroupCommands(ABC):
    """Each goes to every exchange of the queue, and may be repeated."""

    _engine: Engine

    @abstractmethod
    def describe(self, queue: str) -> QueueDescription:
        """Everything about one queue."""

    @abstractmethod
    def _seconds(self, timeout: float | None) -> float:
        """A time limit, or that of the connection."""

    def groups(
        self, queue: str, group: str | None = None, *, timeout: float | None = None
    ) -> GroupListing:
        """The consumer groups of a queue, each summed up over all exchanges.

        Args:
            group: this one only, and with its members.
            timeout: seconds that exchanges have to answer; None: as `connect` was told. One that
                does not is named in `missing` of the answer, which is without it then.

        Raises:
            GroupNotFound: there is no such group.
            Unavailable: nobody has answered.
            QueueStopped: the queue does not run.
        """
        name = "" if group is None else check_name(group, "group")
        return consumer_groups.list_groups(
            self._engine, self.describe(queue), name, self._seconds(timeout), time()
        )

    def seek_group(
        self, queue: str, group: str, to: str | datetime, *, timeout: float | None = None
    ) -> list[str]:
        """Have a group go on from elsewhere, at every exchange.

        What its members hold at that moment is not theirs any more: what they have done with it may
        be done again.

        Args:
            to: `earliest`: all that is still there; `latest`: only what comes from now on; or an
                aware time, and it goes on with what was appended then.
            timeout: seconds that exchanges have to answer; None: as `connect` was told.

        Returns:
            The exchanges that have the group.

        Raises:
            GroupNotFound: no exchange has it.
            InvalidRequest: it is a service: each of its requests ends once.
            Unavailable: not every exchange has answered; says where it is done. Repeat it.
            QueueStopped: the queue does not run.
        """
        time_us, to_end = start_of(to)
        return self._order_group(queue, group, "seek", timeout, time_us=time_us, to_end=to_end)

    def pause_group(self, queue: str, group: str, *, timeout: float | None = None) -> list[str]:
        """Have a group hand out nothing more; what members hold they may do. As `seek_group`."""
        return self._order_group(queue, group, "pause", timeout)

    def resume_group(self, queue: str, group: str, *, timeout: float | None = None) -> list[str]:
        """Have a paused group go on. As `seek_group`."""
        return self._order_group(queue, group, "resume", timeout)

    def delete_group(self, queue: str, group: str, *, timeout: float | None = None) -> list[str]:
        """Forget a group, and what it has done; its members are told and end. As `seek_group`.

        A consumer that comes later makes a new one.
        """
        return self._order_group(queue, group, "delete", timeout)

    def _order_group(
        self, queue: str, group: str, word: str, timeout: float | None, *,
        time_us: int = 0, to_end: bool = False,
    ) -> list[str]:  # fmt: skip
        return consumer_groups.order(
            self._engine, self.describe(queue), check_name(group, "group"), word,
            self._seconds(timeout), time_us=time_us, to_end=to_end,
        )  # fmt: skip
