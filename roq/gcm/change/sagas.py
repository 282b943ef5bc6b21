"""What each change of a queue consists of, step by step.

The order is always: write down what shall be, start or stop it, write down what is. A change that
cannot be completed is undone; where even that fails, the definition stays behind in a state
(`creating`, `stopping`, …) from which the same command, or a later leader, can go on. Every step is
idempotent at the host manager.

    queue      create     creating  -> StartMonitor, StartExchange      -> running
                                                                  undo: StopQueue, erase
               start      starting  -> StartMonitor, all StartExchange  -> running
                                                                  undo: StopQueue, stopped
               stop       stopping  -> StopQueue on every host          -> stopped
               remove     removing  -> StopQueue on every host          -> erased
    exchange   add        creating  -> StartExchange                    -> created
                                                                  undo: StopQueue(number), erase
               remove     Empty, removing -> StopQueue(number)          -> erased
    healing    moved to another host -> StartMonitor, StartExchange     -> addresses
               of a durable queue: away, and another exchange is added
    host       cordon, uncordon, drain, leave: what is wanted of it is written down
               vacate   one step: an exchange added elsewhere, one emptied, or the monitor moved
    upkeep     note addresses, stop what nobody wants, remove logs whose hosts were away
"""

from __future__ import annotations

from roq.gcm.change.exchange import ExchangeSagas
from roq.gcm.change.host import HostSagas
from roq.gcm.change.queue import QueueSagas
from roq.gcm.change.reconciliation import Reconciliation
from roq.gcm.change.replacement import ReplacementSagas
from roq.gcm.change.saga_steps import Steps
from roq.gcm.state.heartbeats import Heartbeats
from roq.gcm.state.hosts import Hosts
from roq.gcm.state.queues import Queues
from roq.gcm.state.removed_logs import RemovedLogs


class Sagas:
    """The sagas of one leader, by what they change."""

    def __init__(
        self, queues: Queues, removed: RemovedLogs, hosts: Hosts, heartbeats: Heartbeats
    ) -> None:
        self._steps = Steps(queues, removed, hosts, heartbeats)
        self.exchange = ExchangeSagas(self._steps)
        self.healing = ReplacementSagas(self._steps, self.exchange)
        self.queue = QueueSagas(self._steps, self.healing)
        self.upkeep = Reconciliation(self._steps)
        self.host = HostSagas(self._steps, self.exchange, self.healing)

    @property
    def leader_epoch(self) -> int:
        """Under which commands are given."""
        return self._steps.leader_epoch

    def lead(self, epoch: int, cluster: str) -> None:
        """Host managers are told that commands come from the leader of this epoch and cluster."""
        self._steps.leader_epoch = epoch
        self._steps.cluster = cluster
