"""What the registry does when its store misbehaves; the rest is in the contract."""

from collections.abc import Callable, Sequence

from posting import Loop

from roq.coordination.registry import LAYOUT, StoreRegistry
from roq.coordination.registry_contract import Committed, Conflict, Node, Reason, SessionState
from roq.coordination.store_contract import MultiResult, Refused, Step, Watch
from roq.errors import RegistryAway


class ScriptedStore:
    """Answers as it is told to; counts what it is asked."""

    def __init__(self) -> None:
        self.session = 1
        self.tell: Callable[[SessionState], None] = lambda _: None
        self.found: Node | RegistryAway | None = None
        self.names: tuple[str, ...] | RegistryAway = ()
        self.outcome: MultiResult = Committed((0,))
        self.restarts: list[str] = []
        self.transactions: list[Sequence[Step]] = []

    def start(self, on_session: Callable[[SessionState], None]) -> None:
        self.tell = on_session

    def read(
        self, path: str, watch: Watch | None, done: Callable[[Node | RegistryAway | None], None]
    ) -> None:
        laid = Node(path, b"", 0) if path == "/base" and self.transactions else None
        done(self.found or laid)

    def children(
        self,
        path: str,
        watch: Watch | None,
        done: Callable[[tuple[str, ...] | RegistryAway | None], None],
    ) -> None:
        done(self.names)

    def multi(self, steps: Sequence[Step], done: Callable[[MultiResult], None]) -> None:
        self.transactions.append(steps)
        done(self.outcome)

    def restart(self, reason: str) -> None:
        self.restarts.append(reason)

    def close(self) -> None: ...


def started(store: ScriptedStore) -> tuple[StoreRegistry, list[SessionState]]:
    states: list[SessionState] = []
    registry = StoreRegistry(store, Loop().post)
    registry.start(states.append)
    store.tell(SessionState.CONNECTED)
    return registry, states


def test_the_tree_is_laid_out_before_anybody_hears_of_the_connection() -> None:
    store = ScriptedStore()
    _, states = started(store)
    assert [steps[0].path for steps in store.transactions] == list(LAYOUT)
    assert states == [SessionState.CONNECTED]


def test_a_tree_that_stands_is_not_laid_out_again() -> None:
    store = ScriptedStore()
    store.names = tuple(path[1:] for path in LAYOUT)
    store.found = Node("/base", b"", 3)
    _, states = started(store)
    assert store.transactions == []
    assert states == [SessionState.CONNECTED]


def test_two_registries_that_lay_the_tree_out_at_once_do_not_mind() -> None:
    store = ScriptedStore()
    store.outcome = Refused(0, Reason.EXISTS)
    _, states = started(store)
    assert states == [SessionState.CONNECTED]
    assert store.restarts == []


def test_what_is_missing_of_a_tree_is_made() -> None:
    store = ScriptedStore()
    store.names = tuple(path[1:] for path in LAYOUT if path != "/hosts")
    started(store)
    assert [steps[0].path for steps in store.transactions] == ["/hosts"]


def test_an_ensemble_that_cannot_be_used_is_never_called_connected() -> None:
    for names, found, outcome in (
        (RegistryAway("no access"), None, Committed((0,))),
        ((), RegistryAway("no access"), RegistryAway("no access")),
        (tuple(path[1:] for path in LAYOUT), None, Committed((0,))),
    ):
        store = ScriptedStore()
        store.names, store.found, store.outcome = names, found, outcome
        registry, states = started(store)
        assert states == []
        assert registry.state is SessionState.LOST
        assert store.restarts


def test_a_base_that_cannot_be_read_keeps_nobody_from_the_rest() -> None:
    store = ScriptedStore()
    store.names = tuple(path[1:] for path in LAYOUT)
    store.found = Node("/base", b"one", 0)
    _, states = started(store)
    assert states == [SessionState.CONNECTED]
    assert store.restarts == []


def test_an_interruption_before_the_first_connection_is_not_told() -> None:
    store = ScriptedStore()
    store.names = RegistryAway("gone again")
    _, states = started(store)
    store.tell(SessionState.SUSPENDED)
    store.tell(SessionState.LOST)
    assert states == []


def test_a_name_that_cannot_be_had_is_given_up_after_a_few_attempts() -> None:
    store = ScriptedStore()
    registry, _ = started(store)
    store.outcome = Refused(0, Reason.EXISTS)  # and yet a look finds nothing there
    done: list[Committed | Conflict] = []
    registry.register_host("h1", b"", done.append)
    assert done == [Conflict("/hosts/h1", Reason.EXISTS)]
    assert len(store.transactions) < 20
