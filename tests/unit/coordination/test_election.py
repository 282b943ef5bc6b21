"""Who leads, and with which epoch, whatever a store answers; the rest is in the contract."""

from collections.abc import Callable

import pytest
from paper_store import PaperStore

from roq.coordination.counter import Counter
from roq.coordination.election import Election
from roq.coordination.registry_contract import (
    BASE,
    CANDIDATES,
    CLUSTER,
    LEADER,
    Create,
    Delete,
    Fence,
    Leadership,
    Reason,
    RegistryDenied,
)
from roq.coordination.store_contract import CreateNext, Refused, Watch
from roq.errors import RegistryAway


class Candidate:
    """A process that stands for election, and what it was told."""

    def __init__(
        self,
        store: PaperStore,
        may_lead: Callable[[str | None], bool] = lambda _: True,
        above: int = 0,
    ) -> None:
        self.led: list[Leadership] = []
        self.followed: list[bytes | None] = []
        self.counter = Counter(store)
        self.counter.follow(lambda _: None)
        self.election = Election(
            store, self.counter, b"me", self.led.append, self.followed.append, may_lead,
            lambda: above,
        )  # fmt: skip


def names(store: PaperStore) -> tuple[str, ...]:
    return store.nodes.names(CANDIDATES) or ()


def somebody(store: PaperStore, data: bytes = b"other") -> str:
    """Another process has stood first."""
    session = store.nodes.open_session()
    store.nodes.transact(session, [CreateNext(f"{CANDIDATES}/c-{'0' * 32}-", data)])
    return f"{CANDIDATES}/{names(store)[0]}"


def test_who_stands_alone_leads_with_the_epoch_that_it_has_drawn() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    candidate.election.resume()
    assert candidate.led == [Leadership(1, 1)]
    assert store.nodes.node(LEADER).data == b"me"
    assert candidate.followed == []


def test_it_leads_above_every_epoch_that_it_knows() -> None:
    store = PaperStore()
    candidate = Candidate(store, above=40)
    candidate.election.resume()
    assert [each.epoch for each in candidate.led] == [41]


def test_who_stands_first_is_followed_once_it_has_written_that_it_leads() -> None:
    store = PaperStore()
    first = somebody(store)
    candidate = Candidate(store)
    candidate.election.resume()
    assert candidate.followed == [None]  # what stands there is of one that is gone
    store.write(LEADER, b"other")
    assert candidate.followed == [None, b"other"]
    store.nodes.transact(0, [Delete(first)])
    store.tell(first)
    assert candidate.led == [Leadership(1, 2)]


def test_the_same_leader_is_told_once_until_the_session_is_lost() -> None:
    store = PaperStore()
    somebody(store)
    store.write(LEADER, b"other")
    candidate = Candidate(store)
    candidate.election.resume()
    candidate.election.resume()
    assert candidate.followed == [b"other"]
    candidate.election.forget()
    candidate.election.resume()
    assert candidate.followed == [b"other"] * 2


def test_who_may_not_lead_keeps_no_candidacy_and_follows_nobody_while_nobody_stands() -> None:
    store = PaperStore()
    home = ["c1"]
    candidate = Candidate(store, may_lead=lambda cluster: cluster in home)
    candidate.election.resume()
    assert len(candidate.led) == len(names(store)) == 1
    store.write(CLUSTER, b"c2")
    assert names(store) == ()
    assert candidate.followed == [None]
    home.append("c2")
    store.tell(CLUSTER)
    assert [each.epoch for each in candidate.led] == [1, 2]


@pytest.mark.parametrize("name", ["c-1-0000000000", "lock", f"c-{'g' * 32}-0000000000"])
def test_what_is_not_named_as_candidates_are_stands_for_nobody(name: str) -> None:
    store = PaperStore()
    store.nodes.transact(0, [Create(f"{CANDIDATES}/{name}")])
    candidate = Candidate(store)
    candidate.election.resume()
    assert len(candidate.led) == 1


def test_a_candidacy_that_ends_with_no_session_is_passed_over() -> None:
    store = PaperStore()
    store.nodes.transact(0, [Create(f"{CANDIDATES}/c-{'0' * 32}-0000000000", b"copied")])
    candidate = Candidate(store)
    candidate.election.resume()
    assert len(candidate.led) == 1


def test_a_leader_steps_back_if_its_node_is_written_by_another_one() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    candidate.election.resume()
    store.write(LEADER, b"stranger")
    assert candidate.followed == [None]
    assert [each.epoch for each in candidate.led] == [1, 2]
    assert store.nodes.node(LEADER).data == b"me"


def test_a_candidacy_that_says_something_else_is_written_again() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    candidate.election.resume()
    path = f"{CANDIDATES}/{names(store)[0]}"
    store.write(path, b"stranger")
    assert store.nodes.node(path).data == b"me"
    assert len(candidate.led) == 1


def test_a_leader_whose_candidacy_is_gone_steps_back_before_it_stands_anew() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    candidate.election.resume()
    store.nodes.transact(0, [Delete(f"{CANDIDATES}/{names(store)[0]}")])
    store.tell(CANDIDATES)
    assert candidate.followed == [None]
    assert [each.epoch for each in candidate.led] == [1, 2]


def test_a_leadership_is_over_by_the_fence_of_it_and_by_no_other() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    candidate.election.resume()
    candidate.election.overtaken(Fence(1, 9))
    assert candidate.followed == []
    candidate.election.overtaken(candidate.led[0].fence)
    assert candidate.followed == [None]
    assert [each.epoch for each in candidate.led] == [1, 2]


def test_a_leader_node_that_is_missing_is_made() -> None:
    store = PaperStore()
    store.nodes.transact(0, [Delete(LEADER)])
    candidate = Candidate(store)
    candidate.election.resume()
    assert len(candidate.led) == 1


def test_a_process_that_is_refused_again_and_again_gives_its_session_up() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    store.answers = [Refused(0, Reason.MISSING)] * 100
    candidate.election.resume()
    assert store.restarts == ["what an election needs is gone from the registry"]
    assert len(store.transactions) < 20
    assert candidate.led == []


def test_what_a_process_is_not_permitted_to_read_makes_it_give_its_session_up() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    store.away = RegistryDenied(f"{CLUSTER} is not permitted")
    candidate.election.resume()
    assert store.restarts == [f"{CLUSTER} is not permitted"]


def test_a_connection_that_breaks_is_waited_for() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    store.away = RegistryAway("cut")
    candidate.election.resume()
    assert (store.restarts, candidate.led, candidate.followed) == ([], [], [])
    store.away = None
    store.answers = [RegistryAway("cut")]
    candidate.election.resume()
    assert candidate.led == []
    candidate.election.resume()
    assert len(candidate.led) == 1


def test_who_cannot_count_leads_nobody_until_it_can() -> None:
    store = PaperStore()
    store.nodes.transact(0, [Delete(BASE), Create(BASE, b"one")])
    candidate = Candidate(store)
    candidate.election.resume()
    assert (candidate.led, candidate.followed) == ([], [None])
    store.write(BASE, b"0")
    candidate.election.recount()
    assert len(candidate.led) == 1


def test_a_leader_raises_the_count_above_what_it_knows_when_it_can_count_again() -> None:
    store = PaperStore()
    candidate = Candidate(store, above=10)
    candidate.election.resume()
    store.write(BASE, b"0")  # set right by hand, and forgotten how far it was
    candidate.election.recount()
    drawn: list[int | RegistryAway] = []
    candidate.counter.draw(0, drawn.append)
    assert drawn == [12]
    assert len(candidate.led) == 1


def test_each_process_stands_under_a_name_of_its_own() -> None:
    store = PaperStore()
    for _ in range(2):
        Candidate(store).election.resume()
    assert len({name.rsplit("-", 1)[0] for name in names(store)}) == 2


@pytest.mark.parametrize("lost", [True, False])
def test_a_look_that_was_never_answered_keeps_nobody_from_the_next_connection(
    monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    store = PaperStore()
    candidate = Candidate(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "read", lambda *_: None)
        candidate.election.resume()
        if lost:
            candidate.election.forget()
    candidate.election.resume()
    assert len(candidate.led) == 1


@pytest.mark.parametrize("path", [CLUSTER, LEADER, "first"])
def test_a_connection_that_breaks_in_the_middle_of_a_look_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    store = PaperStore()
    first = somebody(store)
    candidate = Candidate(store)
    read = store.read

    def breaks(where: str, watch: Watch | None, done: Callable[[object], None]) -> None:
        broken = where == (first if path == "first" else path)
        done(RegistryAway("cut")) if broken else read(where, watch, done)

    monkeypatch.setattr(store, "read", breaks)
    candidate.election.resume()
    assert (candidate.followed, store.restarts) == ([], [])
    monkeypatch.undo()
    store.tell(CANDIDATES)
    candidate.election.resume()
    assert candidate.followed == [None]


def test_a_leader_whose_candidacy_would_not_end_with_its_session_stands_anew() -> None:
    store = PaperStore()
    candidate = Candidate(store)
    candidate.election.resume()
    path = f"{CANDIDATES}/{names(store)[0]}"
    store.nodes.transact(0, [Delete(path), Create(path, b"me")])
    store.tell(path)
    assert candidate.followed == [None]
    assert [each.epoch for each in candidate.led] == [1, 2]
    assert len(names(store)) == 2
