"""What every registry must do; run against the one in memory and against a real ZooKeeper."""

import threading
from abc import abstractmethod
from functools import partial
from typing import Protocol

import pytest
from posting import Loop

from roq.coordination.registry_contract import (
    EPOCH_MAX,
    CommitResult,
    Committed,
    Conflict,
    Create,
    Delete,
    Fence,
    Leadership,
    Node,
    Operation,
    Reason,
    Registry,
    SessionState,
    Set,
)
from roq.errors import LocalProtocolError, RegistryAway, StaleEpoch


class Ensemble(Protocol):
    """What the contract needs of an ensemble, and of the faults between it and a registry."""

    loop: Loop

    @abstractmethod
    def registry(self) -> Registry:
        """A new registry, not started."""

    @abstractmethod
    def cut(self, registry: Registry) -> None:
        """Break the connection and let none succeed."""

    @abstractmethod
    def mend(self, registry: Registry) -> None:
        """Let connections succeed again."""

    @abstractmethod
    def expire(self, registry: Registry) -> None:
        """Cut, and end the session at the ensemble; `mend` lets the registry find out."""


class Candidate:
    """A process that stands for election, and what it was told."""

    def __init__(self, registry: Registry, data: bytes, *, home: str = "", above: int = 0) -> None:
        self.led: list[Leadership] = []
        self.followed: list[bytes | None] = []
        self.asked: list[str | None] = []
        self.home = home
        self.registry = registry
        registry.campaign(
            data, self.led.append, self.followed.append, self._may_lead, lambda: above
        )

    def _may_lead(self, cluster: str | None) -> bool:
        self.asked.append(cluster)
        return not self.home or cluster == self.home


class RegistryContract:
    """Test cases; a subclass gives the fixture `ensemble`."""

    def open(self, ensemble: Ensemble) -> tuple[Registry, list[SessionState]]:
        registry = ensemble.registry()
        states: list[SessionState] = []
        registry.start(states.append)
        ensemble.loop.until(lambda: SessionState.CONNECTED in states, "a connection")
        return registry, states

    def commit(
        self, ensemble: Ensemble, registry: Registry, *ops: Operation, fence: Fence | None = None
    ) -> CommitResult:
        result: CommitResult = ensemble.loop.ask(partial(registry.commit, ops, fence))
        return result

    def read(self, ensemble: Ensemble, registry: Registry, path: str) -> Node | RegistryAway | None:
        found: Node | RegistryAway | None = ensemble.loop.ask(partial(registry.read, path))
        return found

    # --- reading and writing ----------------------------------------------------------------------

    def test_is_lost_until_it_has_connected(self, ensemble: Ensemble) -> None:
        registry = ensemble.registry()
        assert registry.state is SessionState.LOST
        assert isinstance(self.read(ensemble, registry, "/queues"), RegistryAway)
        assert isinstance(self.commit(ensemble, registry, Create("/queues/a")), RegistryAway)
        assert isinstance(ensemble.loop.ask(registry.next_host_epoch), RegistryAway)
        assert isinstance(ensemble.loop.ask(registry.cluster_id), RegistryAway)
        assert isinstance(ensemble.loop.ask(partial(registry.read_tree, "/queues")), RegistryAway)

    def test_is_connected_once_started(self, ensemble: Ensemble) -> None:
        registry, states = self.open(ensemble)
        assert states == [SessionState.CONNECTED]
        assert registry.state is SessionState.CONNECTED

    def test_is_started_once(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        with pytest.raises(LocalProtocolError):
            registry.start(lambda _: None)

    def test_reads_back_what_was_committed(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        assert self.read(ensemble, one, "/queues/a") is None
        assert self.commit(ensemble, one, Create("/queues/a", b"1")) == Committed((0,))
        assert self.read(ensemble, two, "/queues/a") == Node("/queues/a", b"1", 0)
        assert self.commit(ensemble, two, Set("/queues/a", b"2", 0)) == Committed((1,))
        assert self.read(ensemble, one, "/queues/a") == Node("/queues/a", b"2", 1)
        assert self.commit(ensemble, one, Delete("/queues/a", 1)) == Committed((-1,))
        assert self.read(ensemble, two, "/queues/a") is None

    def test_a_commit_of_nothing_is_done(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        assert self.commit(ensemble, registry) == Committed(())

    def test_makes_parent_and_child_in_one_commit(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        result = self.commit(
            ensemble,
            registry,
            Create("/queues/a"),
            Create("/queues/a/x1", b"1"),
            Set("/queues/a", b"2"),
        )
        assert result == Committed((0, 0, 1))

    @pytest.mark.parametrize(
        ("operation", "reason"),
        [
            (Create("/queues/there"), Reason.EXISTS),
            (Create("/queues/none/x1"), Reason.MISSING),
            (Set("/queues/none", b""), Reason.MISSING),
            (Set("/queues/there", b"", 7), Reason.VERSION),
            (Delete("/queues/none"), Reason.MISSING),
            (Delete("/queues/there"), Reason.NOT_EMPTY),
        ],
    )
    def test_does_nothing_of_a_commit_that_conflicts(
        self, ensemble: Ensemble, operation: Operation, reason: Reason
    ) -> None:
        registry, _ = self.open(ensemble)
        self.commit(ensemble, registry, Create("/queues/there"), Create("/queues/there/x1"))
        result = self.commit(
            ensemble, registry, Create("/queues/new"), operation, Create("/queues/newer")
        )
        assert result == Conflict(operation.path, reason)
        assert self.read(ensemble, registry, "/queues/new") is None
        assert self.read(ensemble, registry, "/queues/newer") is None

    def test_reads_a_whole_tree_sorted_by_path(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        paths = ["/queues/b", "/queues/a", "/queues/a/x2", "/queues/a/x1", "/queues/a/x1/y"]
        self.commit(ensemble, registry, *(Create(path, path.encode()) for path in paths))
        tree = ensemble.loop.ask(partial(registry.read_tree, "/queues"))
        assert tree == [Node(path, path.encode(), 0) for path in sorted(paths)]
        assert ensemble.loop.ask(partial(registry.read_tree, "/queues/b")) == []
        assert ensemble.loop.ask(partial(registry.read_tree, "/queues/none")) == []

    def test_reads_a_tree_wider_than_its_window_of_requests(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        paths = [f"/queues/q{number:03d}" for number in range(200)]
        self.commit(ensemble, registry, *map(Create, paths))
        tree = ensemble.loop.ask(partial(registry.read_tree, "/queues"))
        assert isinstance(tree, list)
        assert [node.path for node in tree] == paths

    def test_an_ephemeral_node_goes_with_its_registry(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        self.commit(ensemble, one, Create("/queues/here", ephemeral=True))
        assert self.read(ensemble, two, "/queues/here") is not None
        one.close()
        assert self.read(ensemble, two, "/queues/here") is None

    def test_refuses_paths_and_data_that_do_not_fit(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        for path in ("", "/", "queues", "/queues/", "//a", "/a/../b", "/a\0b", "/a\nb"):
            with pytest.raises(LocalProtocolError):
                registry.read(path, lambda _: None)
            with pytest.raises(LocalProtocolError):
                Create(path)
        with pytest.raises(LocalProtocolError):
            Set("/queues/a", bytes(1_000_001))

    def test_what_other_tools_can_make_can_be_deleted(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        for name in ("a\u00a0b", "a\u2028b", "\u202eb", "\u200b", "a b", "ü"):
            path = f"/queues/{name}"
            assert self.commit(ensemble, registry, Create(path)) == Committed((0,))
            assert isinstance(self.commit(ensemble, registry, Delete(path)), Committed)

    # --- epochs and identity ----------------------------------------------------------------------

    def name(self, ensemble: Ensemble, registry: Registry, cluster: str = "c1") -> None:
        made = self.commit(ensemble, registry, Create("/cluster", cluster.encode()))
        assert made == Committed((0,))

    def test_host_epochs_rise_over_all_registries(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        self.name(ensemble, one)
        epochs = [ensemble.loop.ask(r.next_host_epoch) for r in (one, two, two, one)]
        assert epochs == [1, 2, 3, 4]

    def test_an_epoch_is_above_what_is_known_to_have_been_given(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        self.name(ensemble, one)
        assert ensemble.loop.ask(one.next_host_epoch) == 1
        assert ensemble.loop.ask(partial(two.next_host_epoch, above=57)) == 58
        assert ensemble.loop.ask(one.next_host_epoch) == 59, "the base was raised behind its back"
        assert ensemble.loop.ask(partial(two.next_host_epoch, above=58)) == 60

    def test_two_that_raise_the_count_at_once_do_not_undo_each_other(
        self, ensemble: Ensemble
    ) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        self.name(ensemble, one)
        drawn: list[int | RegistryAway] = []
        one.next_host_epoch(drawn.append, above=100)
        two.next_host_epoch(drawn.append, above=200)
        one.next_host_epoch(drawn.append, above=50)
        ensemble.loop.until(lambda: len(drawn) == 3, "three epochs")
        assert len(set(drawn)) == 3
        assert max(drawn) > 200
        last = ensemble.loop.ask(one.next_host_epoch)
        assert last > max(drawn)

    def test_an_epoch_that_none_can_follow_is_refused(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        for epoch in (-1, EPOCH_MAX, 1 << 60):
            with pytest.raises(LocalProtocolError):
                registry.next_host_epoch(lambda _: None, above=epoch)

    def test_no_host_draws_before_the_cluster_has_an_identity(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        drawn: list[int | RegistryAway] = []
        one.next_host_epoch(drawn.append)
        one.next_host_epoch(drawn.append)
        assert self.read(ensemble, one, "/cluster") is None
        assert drawn == []
        self.name(ensemble, two)
        ensemble.loop.until(lambda: len(drawn) == 2, "the epochs")
        assert sorted(drawn) == [1, 2]

    def test_who_waits_for_an_identity_hears_when_the_connection_breaks(
        self, ensemble: Ensemble
    ) -> None:
        registry, _ = self.open(ensemble)
        drawn: list[int | RegistryAway] = []
        registry.next_host_epoch(drawn.append)
        assert self.read(ensemble, registry, "/cluster") is None
        ensemble.cut(registry)
        ensemble.loop.until(lambda: bool(drawn), "an answer")
        assert isinstance(drawn[0], RegistryAway)

    def test_all_registries_give_one_cluster_id(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        assert ensemble.loop.ask(one.cluster_id) is None
        self.name(ensemble, one, "c7")
        assert ensemble.loop.ask(one.cluster_id) == ensemble.loop.ask(two.cluster_id) == "c7"

    def test_a_base_that_is_no_number_is_not_counted_from(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, states = self.open(ensemble)
        self.name(ensemble, one)
        self.commit(ensemble, one, Set("/base", b"many"))
        drawn = ensemble.loop.ask(two.next_host_epoch)
        assert isinstance(drawn, RegistryAway)
        assert "'many'" in str(drawn)
        assert states == [SessionState.CONNECTED]

    @pytest.mark.parametrize("damage", [b"many", b"1" * 5000, b"-3", b"\xff\xfe", b"9999999"])
    def test_who_cannot_count_says_why_and_leads_as_soon_as_the_base_is_set_right(
        self, ensemble: Ensemble, damage: bytes
    ) -> None:
        other, _ = self.open(ensemble)
        self.name(ensemble, other)
        self.commit(ensemble, other, Set("/base", damage))
        registry, states, problems = ensemble.registry(), [], []
        registry.start(states.append, problems.append)
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: one.followed == [None], "that nobody leads")
        assert "set it to 0" in problems[-1]
        assert isinstance(ensemble.loop.ask(registry.next_host_epoch), RegistryAway)
        self.commit(ensemble, other, Set("/base", b"nothing of use, either"))
        assert one.led == []
        self.commit(ensemble, other, Set("/base", b"0\n"))
        ensemble.loop.until(lambda: one.led != [], "that it leads")
        assert problems[-1] == ""
        assert states == [SessionState.CONNECTED], "it is in reach all the time"

    def test_a_leader_tells_of_a_damaged_base_and_counts_on_above_all_that_it_knows(
        self, ensemble: Ensemble
    ) -> None:
        registry, states, problems = ensemble.registry(), [], []
        registry.start(states.append, problems.append)
        one = Candidate(registry, b"one", above=500)
        other, _ = self.open(ensemble)
        self.name(ensemble, other)
        ensemble.loop.until(lambda: one.led != [], "that it leads")
        self.commit(ensemble, other, Set("/base", b"x"))
        ensemble.loop.until(lambda: problems != [], "that it hears of it")
        assert "'x'" in problems[0]
        self.commit(ensemble, other, Set("/base", b"0"))
        ensemble.loop.until(lambda: problems[1:] == [""], "that it is mended")
        ensemble.loop.until(
            lambda: ensemble.loop.ask(other.next_host_epoch) > 500, "that it counts from there"
        )
        assert len(one.led) == 1
        assert states == [SessionState.CONNECTED]

    def test_a_base_above_which_no_epoch_is_left_is_a_problem(self, ensemble: Ensemble) -> None:
        registry, problems = ensemble.registry(), []
        registry.start(lambda _: None, problems.append)
        ensemble.loop.until(lambda: registry.state is SessionState.CONNECTED, "a connection")
        self.name(ensemble, registry)
        self.commit(ensemble, registry, Set("/base", b"%d" % EPOCH_MAX))
        assert isinstance(ensemble.loop.ask(registry.next_host_epoch), RegistryAway)
        assert "no epoch is left" in problems[-1]
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: one.followed == [None], "that nobody leads")
        assert "no epoch is left" in problems[-1]
        self.commit(ensemble, registry, Set("/base", b"0"))
        ensemble.loop.until(lambda: one.led != [], "that it leads")
        assert one.led[0].epoch < EPOCH_MAX

    def test_who_leads_after_the_base_was_lost_is_elected_once(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: len(one.led) == 1, "a leader")
        other, _ = self.open(ensemble)
        self.commit(ensemble, other, Delete("/base"))
        ensemble.expire(registry)
        ensemble.mend(registry)
        ensemble.loop.until(lambda: len(one.led) == 2, "the leader again")
        for _ in range(10):  # whatever else is under way has come to its end
            result = self.commit(ensemble, registry, fence=one.led[1].fence)
        assert result == Committed(())
        assert one.led[1].version == one.led[0].version + 1
        assert len(one.led) == 2

    # --- watching ---------------------------------------------------------------------------------

    def test_watches_children_from_now_on(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        seen: list[tuple[str, ...]] = []
        one.watch_children("/queues", seen.append)
        ensemble.loop.until(lambda: seen == [()], "the children now")
        self.commit(ensemble, two, Create("/queues/b"))
        ensemble.loop.until(lambda: seen[-1] == ("b",), "the first child")
        self.commit(ensemble, two, Create("/queues/a"))
        ensemble.loop.until(lambda: seen[-1] == ("a", "b"), "both children")
        self.commit(ensemble, two, Delete("/queues/b"))
        ensemble.loop.until(lambda: seen[-1] == ("a",), "one child less")

    def test_watches_a_path_that_is_made_later(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        seen: list[tuple[str, ...]] = []
        registry.watch_children("/queues/a", seen.append)
        ensemble.loop.until(lambda: seen == [()], "no children")
        self.commit(ensemble, registry, Create("/queues/a"), Create("/queues/a/x1"))
        ensemble.loop.until(lambda: seen[-1] == ("x1",), "the child")

    def test_a_watch_begins_before_the_start_and_goes_on_after_a_lost_session(
        self, ensemble: Ensemble
    ) -> None:
        one = ensemble.registry()
        seen: list[tuple[str, ...]] = []
        one.watch_children("/queues", seen.append)
        one.start(lambda _: None)
        ensemble.loop.until(lambda: seen == [()], "the children now")
        ensemble.expire(one)
        two, _ = self.open(ensemble)
        self.commit(ensemble, two, Create("/queues/a"))
        ensemble.mend(one)
        ensemble.loop.until(lambda: seen[-1] == ("a",), "the child made meanwhile")

    # --- hosts ------------------------------------------------------------------------------------

    def test_a_registered_host_is_there_as_long_as_its_registry(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        two, _ = self.open(ensemble)
        done: list[Committed | Conflict] = []
        one.register_host("h1", b"1", done.append)
        ensemble.loop.until(lambda: bool(done), "the registration")
        assert done == [Committed((0,))]
        node = self.read(ensemble, two, "/hosts/h1")
        assert isinstance(node, Node)
        assert node.data == b"1"
        assert node.owner
        one.close()
        assert self.read(ensemble, two, "/hosts/h1") is None

    def test_registering_again_replaces_the_data(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        done: list[Committed | Conflict] = []
        registry.register_host("h1", b"1", done.append)
        ensemble.loop.until(lambda: len(done) == 1, "the registration")
        registry.register_host("h1", b"2", done.append)
        ensemble.loop.until(lambda: len(done) == 2, "the second registration")
        assert done == [Committed((0,)), Committed((1,))]
        node = self.read(ensemble, registry, "/hosts/h1")
        assert isinstance(node, Node)
        assert node.data == b"2"

    def test_a_newer_process_takes_the_name_of_a_host_over(self, ensemble: Ensemble) -> None:
        old, _ = self.open(ensemble)
        new, _ = self.open(ensemble)
        told_old: list[Committed | Conflict] = []
        told_new: list[Committed | Conflict] = []
        old.register_host("h1", b"old", told_old.append)
        ensemble.loop.until(lambda: bool(told_old), "the first registration")
        new.register_host("h1", b"new", told_new.append)
        ensemble.loop.until(lambda: bool(told_new), "the second registration")
        ensemble.loop.until(lambda: len(told_old) == 2, "the first one told")
        assert told_new == [Committed((0,))]
        assert told_old[1] == Conflict("/hosts/h1", Reason.EXISTS)

    def test_what_a_predecessor_asked_for_and_comes_late_takes_no_name_from_a_host(
        self, ensemble: Ensemble
    ) -> None:
        old, _ = self.open(ensemble)
        new, _ = self.open(ensemble)
        told_old: list[Committed | Conflict] = []
        told_new: list[Committed | Conflict] = []
        old.register_host("h1", b'{"epoch": 9}', told_old.append)
        ensemble.loop.until(lambda: len(told_old) == 1, "the first registration")
        new.register_host("h1", b'{"epoch": 10}', told_new.append)
        ensemble.loop.until(lambda: len(told_new) == 1, "the second registration")
        ensemble.loop.until(lambda: len(told_old) == 2, "the first one told")
        late = Create("/hosts/h1", b'{"epoch": 9}', ephemeral=True)
        assert isinstance(self.commit(ensemble, old, Delete("/hosts/h1"), late), Committed)

        def stands() -> bool:
            node = self.read(ensemble, old, "/hosts/h1")
            return isinstance(node, Node) and node.data == b'{"epoch": 10}'

        ensemble.loop.until(stands, "the host's own node")
        assert set(map(type, told_new)) == {Committed}
        assert told_old[1:] == [Conflict("/hosts/h1", Reason.EXISTS)]

    def test_a_node_that_ends_with_no_session_takes_no_name_from_a_host(
        self, ensemble: Ensemble
    ) -> None:
        host, _ = self.open(ensemble)
        told: list[Committed | Conflict] = []
        host.register_host("h1", b"own", told.append)
        ensemble.loop.until(lambda: len(told) == 1, "the registration")
        other, _ = self.open(ensemble)
        self.commit(ensemble, other, Delete("/hosts/h1"), Create("/hosts/h1", b"by hand"))

        def stands() -> bool:
            node = self.read(ensemble, other, "/hosts/h1")
            return isinstance(node, Node) and node.data == b"own" and node.owner != 0

        ensemble.loop.until(stands, "the host's own node")
        assert set(map(type, told)) == {Committed}

    def test_a_host_whose_name_is_obstructed_goes_on_without_a_node(
        self, ensemble: Ensemble
    ) -> None:
        other, _ = self.open(ensemble)
        self.commit(ensemble, other, Create("/hosts/h1", b"by hand"), Create("/hosts/h1/below"))
        host, _ = self.open(ensemble)
        told: list[Committed | Conflict] = []
        host.register_host("h1", b"own", told.append)
        ensemble.loop.until(lambda: told == [Committed((0,))], "the registration")
        for number in range(12):
            self.commit(ensemble, other, Set("/hosts/h1", b"by hand %d" % number))
        assert told == [Committed((0,))]  # whatever becomes of it, nobody has taken the name
        self.commit(ensemble, other, Delete("/hosts/h1/below"), Delete("/hosts/h1"))

        def stands() -> bool:
            node = self.read(ensemble, other, "/hosts/h1")
            return isinstance(node, Node) and node.data == b"own"

        ensemble.loop.until(stands, "the host's own node")

    def test_a_host_is_registered_again_after_a_lost_session(self, ensemble: Ensemble) -> None:
        one, states = self.open(ensemble)
        done: list[Committed | Conflict] = []
        one.register_host("h1", b"1", done.append)
        ensemble.loop.until(lambda: len(done) == 1, "the registration")
        ensemble.expire(one)
        ensemble.mend(one)
        ensemble.loop.until(lambda: len(done) == 2, "the registration anew")
        assert done[1] == Committed((0,))
        assert states == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.LOST,
            SessionState.CONNECTED,
        ]

    def test_a_process_that_was_away_leaves_the_name_to_its_successor(
        self, ensemble: Ensemble
    ) -> None:
        old, _ = self.open(ensemble)
        told_old: list[Committed | Conflict] = []
        told_new: list[Committed | Conflict] = []
        old.register_host("h1", b"old", told_old.append)
        ensemble.loop.until(lambda: bool(told_old), "the first registration")
        ensemble.expire(old)
        new, _ = self.open(ensemble)
        new.register_host("h1", b"new", told_new.append)
        ensemble.loop.until(lambda: bool(told_new), "the second registration")
        ensemble.mend(old)
        ensemble.loop.until(lambda: len(told_old) == 2, "the first one told")
        assert told_old[1] == Conflict("/hosts/h1", Reason.EXISTS)
        assert told_new == [Committed((0,))]

    # --- election ---------------------------------------------------------------------------------

    def test_one_leads_and_the_others_follow_it(self, ensemble: Ensemble) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two = Candidate(self.open(ensemble)[0], b"two")
        three = Candidate(self.open(ensemble)[0], b"three")
        ensemble.loop.until(
            lambda: two.followed == [b"one"] and three.followed == [b"one"], "followers"
        )
        assert [two.led, three.led, one.followed] == [[], [], []]

    def test_the_next_leads_with_a_higher_epoch_when_the_leader_goes(
        self, ensemble: Ensemble
    ) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: bool(two.followed), "a follower")
        three = Candidate(self.open(ensemble)[0], b"three")
        ensemble.loop.until(lambda: bool(three.followed), "another follower")
        one.registry.close()
        ensemble.loop.until(lambda: bool(two.led), "the next leader")
        ensemble.loop.until(lambda: three.followed[-1] == b"two", "the last one following")
        assert two.led[0].epoch > one.led[0].epoch
        assert three.led == []

    def test_what_stands_beside_the_candidates_is_nobody_who_leads(
        self, ensemble: Ensemble
    ) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        other, _ = self.open(ensemble)
        for name in ("c-x-0000000000", "notes", "0000000000"):
            created = self.commit(ensemble, other, Create(f"/candidates/{name}", b"junk"))
            assert isinstance(created, Committed)
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: two.followed == [b"one"], "a follower")
        assert (len(one.led), one.followed) == (1, [])
        one.registry.close()
        ensemble.loop.until(lambda: bool(two.led), "the next leader")

    def test_a_write_of_the_leader_passes_its_fence(self, ensemble: Ensemble) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        fence = one.led[0].fence
        result = self.commit(ensemble, one.registry, Create("/queues/a"), fence=fence)
        assert result == Committed((0,))
        again = self.commit(ensemble, one.registry, Create("/queues/a"), fence=fence)
        assert again == Conflict("/queues/a", Reason.EXISTS)
        assert self.commit(ensemble, one.registry, fence=fence) == Committed(())

    def test_a_write_with_a_stale_fence_does_nothing(self, ensemble: Ensemble) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two, _ = self.open(ensemble)
        stale = Fence(one.led[0].epoch - 1, one.led[0].version - 1)
        result = self.commit(ensemble, two, Create("/queues/a"), fence=stale)
        assert isinstance(result, StaleEpoch)
        assert self.read(ensemble, two, "/queues/a") is None

    def test_a_leader_goes_on_with_its_epoch_after_a_short_interruption(
        self, ensemble: Ensemble
    ) -> None:
        registry, states = self.open(ensemble)
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        ensemble.cut(registry)
        ensemble.loop.until(lambda: states[-1] is SessionState.SUSPENDED, "the interruption")
        away = self.commit(ensemble, registry, Create("/queues/a"), fence=one.led[0].fence)
        assert isinstance(away, RegistryAway)
        ensemble.mend(registry)
        ensemble.loop.until(lambda: states[-1] is SessionState.CONNECTED, "the connection")
        result = self.commit(ensemble, registry, Create("/queues/a"), fence=one.led[0].fence)
        assert result == Committed((0,))
        assert len(one.led) == 1
        assert SessionState.LOST not in states

    def test_leadership_passes_on_when_the_session_ends_and_its_writes_are_refused(
        self, ensemble: Ensemble
    ) -> None:
        registry, states = self.open(ensemble)
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: bool(two.followed), "a follower")
        ensemble.expire(registry)
        ensemble.loop.until(lambda: bool(two.led), "the next leader")
        ensemble.mend(registry)
        ensemble.loop.until(lambda: one.followed == [b"two"], "the old leader following")
        assert SessionState.LOST in states
        late = self.commit(ensemble, registry, Create("/queues/a"), fence=one.led[0].fence)
        assert isinstance(late, StaleEpoch)
        assert self.read(ensemble, registry, "/queues/a") is None

    def test_a_lone_leader_leads_again_with_a_higher_epoch_after_a_lost_session(
        self, ensemble: Ensemble
    ) -> None:
        registry, _ = self.open(ensemble)
        one = Candidate(registry, b"one")
        ensemble.loop.until(lambda: len(one.led) == 1, "a leader")
        ensemble.expire(registry)
        ensemble.mend(registry)
        ensemble.loop.until(lambda: len(one.led) == 2, "the leader again")
        assert one.led[1].epoch > one.led[0].epoch

    def test_a_leader_whose_node_was_overwritten_steps_back_and_leads_anew(
        self, ensemble: Ensemble
    ) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        other, _ = self.open(ensemble)
        self.commit(ensemble, other, Set("/leader", b"an operator was here"))
        result = self.commit(ensemble, one.registry, fence=one.led[0].fence)
        assert isinstance(result, StaleEpoch)
        ensemble.loop.until(lambda: len(one.led) == 2, "the leader again")
        assert one.followed == [None]

    @pytest.mark.parametrize("step", [Set("/leader", b"an operator was here"), Delete("/leader")])
    def test_who_follows_finds_the_leader_again_whose_node_was_spoilt(
        self, ensemble: Ensemble, step: Operation
    ) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: two.followed == [b"one"], "a follower")
        other, _ = self.open(ensemble)
        self.commit(ensemble, other, step)
        ensemble.loop.until(lambda: len(one.led) == 2, "the leader again")
        ensemble.loop.until(lambda: two.followed[-1] == b"one", "a follower again")
        node = self.read(ensemble, other, "/leader")
        assert isinstance(node, Node)
        assert node.data == b"one"
        assert one.led[1].epoch > one.led[0].epoch
        assert two.led == []

    def test_a_candidate_that_ends_with_no_session_stands_for_nobody(
        self, ensemble: Ensemble
    ) -> None:
        other, _ = self.open(ensemble)
        copied = f"/candidates/c-{0:032x}-{0:010}"
        self.commit(ensemble, other, Create(copied, b"copied"), Create(f"{copied}/below"))
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: two.followed[-1:] == [b"one"], "a follower")
        one.registry.close()
        ensemble.loop.until(lambda: bool(two.led), "the next leader")

    def test_a_leader_whose_candidacy_was_replaced_does_not_lead_beside_another_one(
        self, ensemble: Ensemble
    ) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: two.followed == [b"one"], "a follower")
        other, _ = self.open(ensemble)
        path = self.candidacy(ensemble, other, b"one")
        self.commit(ensemble, other, Delete(path), Create(path, b"one"))
        ensemble.loop.until(lambda: bool(two.led), "the next leader")
        ensemble.loop.until(lambda: one.followed[-1:] == [b"two"], "the old one following")
        assert len(two.led) == 1
        # It stands again, with a node of its own.
        two.registry.close()
        ensemble.loop.until(lambda: len(one.led) == 2, "the first one leading again")

    def test_a_leader_whose_candidacy_was_overwritten_is_followed(self, ensemble: Ensemble) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        other, _ = self.open(ensemble)
        path = self.candidacy(ensemble, other, b"one")
        self.commit(ensemble, other, Set(path, b"an operator was here"))
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: two.followed[-1:] == [b"one"], "a follower")
        assert len(one.led) == 1

    def candidacy(self, ensemble: Ensemble, registry: Registry, data: bytes) -> str:
        tree = ensemble.loop.ask(partial(registry.read_tree, "/candidates"))
        assert isinstance(tree, list)
        (path,) = [node.path for node in tree if node.data == data]
        return path

    def test_a_leader_whose_candidacy_was_deleted_steps_back(self, ensemble: Ensemble) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: bool(two.followed), "a follower")
        self.commit(ensemble, two.registry, Delete(self.candidacy(ensemble, two.registry, b"one")))
        ensemble.loop.until(lambda: bool(two.led), "the next leader")
        ensemble.loop.until(lambda: one.followed[-1:] == [b"two"], "the old one following")

    def test_who_may_not_lead_follows_and_leads_once_it_may(self, ensemble: Ensemble) -> None:
        one, _ = self.open(ensemble)
        waiting = Candidate(one, b"one", home="c1")
        ensemble.loop.until(lambda: waiting.followed == [None], "that nobody leads")
        assert ensemble.loop.ask(partial(one.read_tree, "/candidates")) == []
        two = Candidate(self.open(ensemble)[0], b"two")
        ensemble.loop.until(lambda: waiting.followed == [None, b"two"], "a follower")
        self.name(ensemble, two.registry, "c1")
        ensemble.loop.until(lambda: "c1" in waiting.asked, "the identity")
        two.registry.close()
        ensemble.loop.until(lambda: bool(waiting.led), "the next leader")

    def test_a_leader_steps_back_when_the_registry_becomes_that_of_another_cluster(
        self, ensemble: Ensemble
    ) -> None:
        registry, _ = self.open(ensemble)
        self.name(ensemble, registry, "c1")
        one = Candidate(registry, b"one", home="c1")
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        self.commit(ensemble, registry, Set("/cluster", b"c2"))
        ensemble.loop.until(lambda: one.followed == [None], "nobody leading")

    def test_a_leader_has_a_higher_epoch_than_any_that_it_knows(self, ensemble: Ensemble) -> None:
        one = Candidate(self.open(ensemble)[0], b"one", above=41)
        ensemble.loop.until(lambda: bool(one.led), "a leader")
        assert one.led[0].epoch == 42
        result = self.commit(ensemble, one.registry, Create("/queues/a"), fence=one.led[0].fence)
        assert result == Committed((0,))
        self.name(ensemble, one.registry)
        other, _ = self.open(ensemble)
        assert ensemble.loop.ask(other.next_host_epoch) == 43

    def test_a_tree_that_was_deleted_is_made_anew(self, ensemble: Ensemble) -> None:
        registry, states = self.open(ensemble)
        one = Candidate(registry, b"one")
        done: list[Committed | Conflict] = []
        registry.register_host("h1", b"1", done.append)
        ensemble.loop.until(lambda: bool(one.led) and bool(done), "a leader and a host")
        other, _ = self.open(ensemble)
        for path in ("/candidates", "/hosts"):
            for node in ensemble.loop.ask(partial(other.read_tree, path)):
                self.commit(ensemble, other, Delete(node.path), Delete(path))
        ensemble.loop.until(lambda: states[1:] != [], "the session given up")
        assert not any(isinstance(each, Conflict) for each in done)
        ensemble.mend(registry)
        ensemble.loop.until(lambda: len(one.led) == 2, "the leader again")
        ensemble.loop.until(lambda: len(done) == 2, "the host again")
        assert done[1] == Committed((0,))

    def test_a_process_stands_for_election_once(self, ensemble: Ensemble) -> None:
        one = Candidate(self.open(ensemble)[0], b"one")
        with pytest.raises(LocalProtocolError):
            Candidate(one.registry, b"again")

    # --- the end ----------------------------------------------------------------------------------

    def test_nothing_is_called_after_close(self, ensemble: Ensemble) -> None:
        registry, states = self.open(ensemble)
        one = Candidate(registry, b"one")
        answers: list[object] = []
        registry.read("/queues", answers.append)
        registry.close()
        registry.close()
        ensemble.loop.drain()
        assert (answers, one.led, one.followed) == ([], [], [])
        assert states == [SessionState.CONNECTED]

    def test_callbacks_run_in_the_thread_of_the_loop(self, ensemble: Ensemble) -> None:
        registry, _ = self.open(ensemble)
        threads: list[threading.Thread] = []
        registry.read("/queues", lambda _: threads.append(threading.current_thread()))
        ensemble.loop.until(lambda: bool(threads), "an answer")
        assert threads == [threading.current_thread()]
