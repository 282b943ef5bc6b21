"""Where a configuration manager stands among the others: who leads, and what may be done now."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from roq.errors import NotLeader, QueueNotFound, RegistryAway, RequestError
from roq.gcm.state.records import Manager
from roq.machine import Transitions
from roq.protocol.reports import Check


class Rank(Enum):
    """What this manager is among the others; `RANKS` says what may follow."""

    FOLLOWER = auto()
    LEADER = auto()
    DOUBTFUL = auto()
    """It led, and then stood still for long, or has just heard that its session ended, so that
    another one may lead by now: it says nothing until the registry has told, or has been out of
    reach for a lease."""
    CARETAKER = auto()
    """It led when its session with the registry ended. Another one may lead by now, so nothing is
    changed any more; but as nobody can tell, what is known is told."""


RANKS: Final = Transitions(
    begin={Rank.FOLLOWER: "the process begins"},
    follow={
        Rank.FOLLOWER: {Rank.LEADER: "elected"},
        Rank.LEADER: {
            Rank.DOUBTFUL: "it stood still, or its session is over",
            Rank.CARETAKER: "out of reach of the registry for a lease",
            Rank.FOLLOWER: "another one leads",
        },
        Rank.DOUBTFUL: {
            Rank.LEADER: "elected again",
            Rank.CARETAKER: "out of reach of the registry for a lease",
            Rank.FOLLOWER: "another one leads",
        },
        Rank.CARETAKER: {
            Rank.LEADER: "elected again",
            Rank.FOLLOWER: "another one leads",
        },
    },
    end={},
)


@dataclass(slots=True)
class Role:
    """What this manager knows of itself and of the others.

    Attributes:
        me: this manager.
        registry: what the registry is called in a sentence.
        cluster: identity of the cluster; empty until the registry has told it.
        rank: what this manager is.
        leader: who leads; None if nobody does.
        managers: all that stand for election.
        registry_away: the registry is out of reach, or of no use, so nothing can be changed.
        away_since: when it went out of reach.
        problem: why it is of no use, if it is in reach.
        epochs_problem: why no epoch can be drawn, so that nobody can begin to lead; empty if one
            can.
        measured: what its shell has found out about this process.
    """

    me: Manager
    registry: str = "ZooKeeper"
    cluster: str = ""
    rank: Rank = Rank.FOLLOWER
    leader: Manager | None = None
    managers: tuple[Manager, ...] = ()
    registry_away: bool = False
    away_since: float = 0.0
    problem: str = ""
    epochs_problem: str = ""
    measured: tuple[Check, ...] = ()

    @property
    def leads(self) -> bool:
        """Whether this manager leads, or did, and does not know better."""
        return self.rank is not Rank.FOLLOWER

    @property
    def answers(self) -> bool:
        """Whether this manager answers what only a leader may."""
        return self.rank in {Rank.LEADER, Rank.CARETAKER}

    @property
    def caretaker(self) -> bool:
        """Whether it tells what it knows, and changes nothing."""
        return self.rank is Rank.CARETAKER

    @property
    def doubtful(self) -> bool:
        """Whether it says nothing for the moment."""
        return self.rank is Rank.DOUBTFUL

    @property
    def known_leader(self) -> Manager | None:
        """Who leads, if that is known; this manager itself only if it does.

        A leader at one of this manager's own addresses is its dead predecessor.
        """
        leader, me = self.leader, self.me
        if leader is None:
            return None
        if leader.id == me.id:
            return leader if self.leads else None
        mine = leader.client == me.client or leader.management == me.management
        return None if mine else leader

    def become(self, rank: Rank) -> None:
        """From now on it is this."""
        self.rank = RANKS.step(self.rank, rank)

    def lose_registry(self, problem: str, now: float) -> None:
        """The registry is out of reach, or of no use because of this problem."""
        if not self.registry_away:
            self.registry_away, self.away_since = True, now
        self.problem = problem

    def regain_registry(self) -> None:
        """The registry is in reach, and of use."""
        self.registry_away, self.problem = False, ""

    def not_leader(self, interface: str) -> NotLeader:
        """The refusal of a manager that does not lead: who does, at this interface."""
        leader = self.known_leader
        if leader is None or leader.id == self.me.id:
            away = f", and {self.registry} cannot be reached" if self.registry_away else ""
            problem = self.problem or self.epochs_problem
            why = f": {problem}" if problem else away
            return NotLeader(
                f"no configuration manager leads at the moment{why}; try again in a second"
            )
        endpoint = leader.management if interface == "management" else leader.client
        return NotLeader(f"{self.me.client} does not lead; ask {endpoint}", endpoint)

    def as_far_as_known(self, error: RequestError, *, follows: bool = False) -> RequestError:
        """What a later leader may have made, nobody is to take for gone.

        Args:
            error: what this manager would answer if it led.
            follows: the client goes on looking for a manager that leads, however long it takes.
        """
        if not self.caretaker or not isinstance(error, QueueNotFound):
            return error
        if follows or any(manager.id != self.me.id for manager in self.managers):
            return NotLeader("the registry is away and leadership open; try the other managers")
        return RegistryAway(f"the registry is away; what was known before: {error}")
