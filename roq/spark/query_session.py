"""A streaming query is known to the queue's monitor, as a subscriber is, with how far it has read.

So no exchange is stopped in order before a query has read its log, for as long as is waited for a
slow subscriber. It takes no part in how messages travel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from roq.client.addresses import parse_addresses
from roq.client.io.engine import Engine
from roq.client.session.shell import MonitorSession
from roq.model import LogId
from roq.protocol.control import Topology
from roq.spark.options import Options


class QuerySession:
    """Tells the monitor how far a query has read, until it is closed.

    Args:
        options: which cluster and queue.
    """

    def __init__(self, options: Options) -> None:
        self._read: dict[LogId, int] = {}
        self._exchanges: tuple[LogId, ...] = ()
        self._engine = Engine()
        self._session = MonitorSession(
            self._engine,
            parse_addresses(list(options.cluster)),
            options.queue,
            client_id=os.urandom(16),
            role="subscriber",
            on_topology=self._topology,
            alive=self._alive,
        )
        self._engine.start()
        self._session.start()

    def read(self, offsets: Mapping[LogId, int]) -> None:
        """Everything below these offsets was read."""
        read = dict(offsets)

        def tell() -> None:
            if read != self._read:
                self._read = read
                self._session.tell_alive()

        self._engine.call_soon(tell)

    def close(self) -> None:
        """The monitor need not wait for this query any more."""
        self._session.close()
        self._engine.close()

    # --- in the engine's thread -------------------------------------------------------------------

    def _topology(self, topology: Topology) -> None:
        self._exchanges = tuple(exchange.log for exchange in topology.exchanges)

    def _alive(self) -> Mapping[str, object]:
        return {"read": [(*key, self._read.get(key, 0)) for key in self._exchanges]}
