"""Who leads: one process' candidacy, from the first look to the last.

Each process keeps one ephemeral, numbered node; the lowest number leads. The one that finds itself
lowest writes its data into the leader node, in one transaction with a check that its candidacy
still stands and with the draw of its epoch. Everybody watches the list, which a handful of managers
can afford, and looks again whenever it changes.

A process that may not lead in this registry keeps no node there, and only follows.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from functools import partial

from roq.coordination.counter import Counter
from roq.coordination.registry_contract import (
    CANDIDATES,
    CLUSTER,
    LEADER,
    Committed,
    Create,
    Delete,
    Fence,
    Leadership,
    Node,
    Reason,
    RegistryDenied,
    Set,
    identity_of,
)
from roq.coordination.store_contract import Check, CreateNext, MultiResult, Refused, Step, Store
from roq.errors import RegistryAway

log = logging.getLogger(__name__)

_NUMBER_DIGITS = 10
_NAME = re.compile(r"c-[0-9a-f]{32}-[0-9]{10}")
"""Of a candidate's node; whatever else stands beside them stands for nobody, and never goes."""
_REFUSALS_MAX = 8
"""In a row; then what this process stands upon is gone, and the session is of no use."""


class Election:
    """Stands for election until its registry is closed.

    Args:
        store: where the election is held.
        counter: gives the epochs.
        data: what the leader node says while this process leads.
        on_lead: called with the epoch when this process begins to lead.
        on_follow: called with the leader's data, or None while nobody leads.
        may_lead: whether this process may lead the cluster of this identity.
        above: the highest epoch that this process knows.
    """

    def __init__(
        self,
        store: Store,
        counter: Counter,
        data: bytes,
        on_lead: Callable[[Leadership], None],
        on_follow: Callable[[bytes | None], None],
        may_lead: Callable[[str | None], bool],
        above: Callable[[], int],
    ) -> None:
        self._store = store
        self._counter = counter
        self._data = data
        self._on_lead = on_lead
        self._on_follow = on_follow
        self._may_lead = may_lead
        self._above = above
        self._may = False
        self._refusals = 0
        # The connection may break after the node was made and before its name arrived: the random
        # part is how it is found again.
        self._prefix = f"c-{uuid.uuid4().hex}-"
        self._leading: Leadership | None = None
        self._nobodies: set[str] = set()
        """Nodes named like candidates that end with no session, as a copied registry has them."""
        self._told = False
        self._leader: bytes | None = None
        self._looking = False
        self._again = False

    def resume(self) -> None:
        """The connection is back (or there for the first time)."""
        self._looking = False
        self._look()

    def forget(self) -> None:
        """The session is lost and with it candidacy and leadership."""
        self._leading = None
        self._told = False
        self._looking = False
        self._refusals = 0

    def recount(self) -> None:
        """Epochs can be drawn again, after they could not for a while."""
        if self._leading is None:
            self._look()
        else:
            # The count may go on below numbers that were given: drawing one above them raises it.
            self._counter.draw(self._above(), lambda _: None)

    def overtaken(self, fence: Fence) -> None:
        """The leadership of this fence is over, as a refused write or a host tells."""
        if self._leading is not None and self._leading.fence == fence:
            self._tell(None)
            self._look()

    # --- one look: candidates, then lead or follow ------------------------------------------------

    def _look(self) -> None:
        if self._looking:
            self._again = True
            return
        self._looking = True
        self._again = False
        self._store.read(CLUSTER, self._look, self._cluster_read)

    def _looked(self) -> None:
        self._looking = False
        if self._again:
            self._look()

    def _look_anew(self) -> None:
        self._again = True
        self._looked()

    def _refused(self) -> None:
        """Something has changed, so a new look will help; but not for ever."""
        self._refusals += 1
        if self._refusals < _REFUSALS_MAX:
            self._look_anew()
        else:
            self._looking = False
            self._store.restart("what an election needs is gone from the registry")

    def _give_up(self, away: RegistryAway) -> None:
        """The session event that follows makes it look again."""
        self._looking = False
        if isinstance(away, RegistryDenied):
            self._store.restart(str(away))

    def _cluster_read(self, found: Node | RegistryAway | None) -> None:
        cluster = identity_of(found)
        if isinstance(cluster, RegistryAway):
            self._give_up(cluster)
            return
        self._may = self._may_lead(cluster)
        self._store.children(CANDIDATES, self._look, self._candidates)

    def _candidates(self, names: tuple[str, ...] | RegistryAway | None) -> None:
        if isinstance(names, RegistryAway):
            self._give_up(names)
            return
        self._nobodies.intersection_update(names or ())
        candidates = {name for name in names or () if _NAME.fullmatch(name)} - self._nobodies
        order = sorted(candidates, key=lambda name: (name[-_NUMBER_DIGITS:], name))
        own = next((name for name in order if name.startswith(self._prefix)), None)
        if not self._may and own is not None:
            self._withdraw(own)
        elif self._may and own is None:
            self._stand()
        elif not order:
            self._looked()
            self._tell(None)
        elif order[0] == own:
            self._lead(own)
        else:
            self._follow(order[0])

    def _withdraw(self, name: str) -> None:
        self._tell(None)
        self._store.multi([Delete(f"{CANDIDATES}/{name}")], self._stood)

    def _stand(self) -> None:
        if self._leading is not None:
            log.warning("the candidacy of this process was deleted", extra={"event": "deposed"})
            self._tell(None)
        step = CreateNext(f"{CANDIDATES}/{self._prefix}", self._data)
        self._store.multi([step], self._stood)

    def _stood(self, result: MultiResult) -> None:
        match result:
            case RegistryAway():
                self._looking = False
            case Refused():
                self._refused()
            case Committed():
                self._refusals = 0
                self._look_anew()

    def _lead(self, name: str) -> None:
        path = f"{CANDIDATES}/{name}"
        self._store.read(path, self._look, partial(self._candidacy_read, name))

    def _candidacy_read(self, name: str, node: Node | RegistryAway | None) -> None:
        """The node, or what it says, may have been replaced: others would follow nobody."""
        path = f"{CANDIDATES}/{name}"
        if isinstance(node, RegistryAway):
            self._give_up(node)
        elif node is None:
            self._look_anew()
        elif node.owner != self._store.session:
            self._ignore(name)
        elif node.data != self._data:
            self._store.multi([Set(path, self._data)], self._stood)
        elif self._leading is not None:
            self._store.read(LEADER, self._look, partial(self._own_read, self._leading))
        elif self._counter.problem:
            self._counter.refresh(self._recount)
        else:
            own: list[Step] = [Check(path), Set(LEADER, self._data)]
            self._store.multi([*own, *self._counter.steps], self._led)

    def _ignore(self, name: str) -> None:
        log.warning(
            "%s/%s does not end with a session of a manager and stands for nobody", CANDIDATES,
            name, extra={"event": "foreign_candidate"},
        )  # fmt: skip
        self._nobodies.add(name)
        self._look_anew()

    def _led(self, result: MultiResult) -> None:
        match result:
            case Committed(versions=versions):
                self._refusals = 0
                self._elected(Leadership(self._counter.number(versions[3]), versions[1]))
            case RegistryAway():
                self._looking = False
            case Refused(index=1, reason=Reason.MISSING):
                self._store.multi([Create(LEADER)], self._stood)
            case Refused(index=2):
                self._counter.refresh(self._recount)
            case Refused():
                self._refused()

    def _own_read(self, leadership: Leadership, node: Node | RegistryAway | None) -> None:
        """A stranger that writes there, or deletes it, keeps the others from following."""
        if isinstance(node, RegistryAway):
            self._give_up(node)
            return
        if self._leading is leadership and (node is None or node.version != leadership.version):
            log.warning(
                "%s was changed by another program; leading anew", LEADER,
                extra={"event": "leader_overwritten"},
            )  # fmt: skip
            self._tell(None)
            self._look_anew()
        else:
            self._looked()

    def _elected(self, leadership: Leadership) -> None:
        if self._counter.used_up(leadership.epoch):
            self._cannot_count()
            return
        above = self._above()
        if leadership.epoch <= above:
            # An earlier registry has given higher ones, which others remember.
            self._counter.raise_above(above, leadership.epoch, self._recount)
            return
        self._leading = leadership
        self._told = False
        log.info("leading, epoch %d", leadership.epoch, extra={"event": "leading"})
        self._look_anew()
        self._on_lead(leadership)

    def _recount(self, away: RegistryAway | None) -> None:
        if away is None:
            self._refused()
        elif self._counter.damaged:
            self._cannot_count()
        else:
            self._looking = False
            self._store.restart(f"no epoch can be drawn: {away}")

    def _cannot_count(self) -> None:
        """An operator who has set the count right lets this process lead; see `recount`."""
        self._looked()
        self._tell(None)

    def _follow(self, first: str) -> None:
        self._store.read(f"{CANDIDATES}/{first}", self._look, partial(self._first_read, first))

    def _first_read(self, name: str, candidate: Node | RegistryAway | None) -> None:
        match candidate:
            case Node(owner=0) | RegistryDenied():
                self._ignore(name)
            case Node(data=data):
                self._store.read(LEADER, self._look, partial(self._leader_read, data))
            case None:
                self._look_anew()
            case RegistryAway():
                self._looking = False

    def _leader_read(self, first: bytes, node: Node | RegistryAway | None) -> None:
        if isinstance(node, RegistryAway):
            self._give_up(node)
            return
        # What a dead leader wrote stands until the next one has written: that one is not followed.
        leads = node is not None and node.data == first
        self._looked()
        self._tell(first if leads else None)

    def _tell(self, leader: bytes | None) -> None:
        deposed = self._leading is not None
        self._leading = None
        if deposed or not self._told or leader != self._leader:
            self._told = True
            self._leader = leader
            self._on_follow(leader)
