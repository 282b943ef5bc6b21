"""A store that answers at once, on nodes in memory, or as it is told to."""

from collections.abc import Callable, Sequence

from roq.coordination.memory import MemoryEnsemble
from roq.coordination.registry import LAYOUT
from roq.coordination.registry_contract import Create, Node, SessionState, Set
from roq.coordination.store_contract import MultiResult, Step, Watch
from roq.errors import RegistryAway


class PaperStore:
    """One session at an ensemble of its own, with the tree laid out.

    Attributes:
        answers: what the next transactions give, in place of being done.
        away: what each read gives, while it is set.
        transactions: what was to be done.
        watches: path → who wants to know when it changes; `change` tells.
        restarts: why the session was given up.
    """

    def __init__(self, cluster: str = "c1") -> None:
        self.nodes = MemoryEnsemble(cluster)
        self.session = self.nodes.open_session()
        self.answers: list[MultiResult] = []
        self.away: RegistryAway | None = None
        self.transactions: list[Sequence[Step]] = []
        self.watches: dict[str, list[Watch]] = {}
        self.restarts: list[str] = []
        self.nodes.transact(0, [Create(path) for path in LAYOUT])

    def start(self, on_session: Callable[[SessionState], None]) -> None:
        on_session(SessionState.CONNECTED)

    def read(
        self, path: str, watch: Watch | None, done: Callable[[Node | RegistryAway | None], None]
    ) -> None:
        self._watch(path, watch)
        done(self.away or self.nodes.node(path))

    def children(
        self,
        path: str,
        watch: Watch | None,
        done: Callable[[tuple[str, ...] | RegistryAway | None], None],
    ) -> None:
        self._watch(path, watch)
        done(self.away or self.nodes.names(path))

    def multi(self, steps: Sequence[Step], done: Callable[[MultiResult], None]) -> None:
        self.transactions.append(steps)
        done(self.answers.pop(0) if self.answers else self.nodes.transact(self.session, steps))

    def restart(self, reason: str) -> None:
        self.restarts.append(reason)

    def close(self) -> None: ...

    def write(self, path: str, data: bytes) -> None:
        """Somebody else writes there."""
        step = Set if self.nodes.node(path) else Create
        self.nodes.transact(0, [step(path, data)])
        self.tell(path)

    def tell(self, path: str) -> None:
        """Who watches this path is told."""
        for watch in self.watches.pop(path, []):
            watch()

    def _watch(self, path: str, watch: Watch | None) -> None:
        if watch is not None and watch not in self.watches.setdefault(path, []):
            self.watches[path].append(watch)
