"""The registry as the shell uses it: elections, commits under a fence, and what goes wrong."""

import pytest
from gcm_script import ME, OTHER
from registry_shell import RECORD, TOLD_OF_LEADERSHIP, Shell

from roq.coordination.memory import MemoryEnsemble
from roq.coordination.registry_contract import (
    Create,
    Delete,
    SessionState,
    Set,
)
from roq.errors import NotLeader, RegistryAway, RequestError
from roq.gcm import events
from roq.gcm.events import Drop, Put
from roq.gcm.persistence.definitions import (
    DROPPED_AT_ONCE,
    below,
    identity_problem,
    operations_for,
    surplus_of,
)
from roq.gcm.state import records


def test_the_first_one_leads_what_there_is(shell: Shell) -> None:
    (elected,) = shell.take(events.Elected)
    assert elected == events.Elected(1, records.Snapshot())
    assert shell.connected == 1
    assert len(shell.take(events.ClusterNamed)) == 1
    assert shell.take(events.ManagersChanged)[-1] == events.ManagersChanged((ME,))


def test_documents_are_made_replaced_and_dropped(shell: Shell) -> None:
    path = records.queue_path("a")
    data = records.encode(RECORD)
    assert shell.commit(1, Put(path, data)) == events.Committed(1)
    assert shell.commit(2, Put(path, b"{}"), Put(f"{path}/rules", b"{}")) == events.Committed(2)
    assert shell.tree() == {path: b"{}", f"{path}/rules": b"{}"}
    assert shell.commit(3, Put(f"{path}/news", b"{}")) == events.Committed(3)
    assert shell.commit(4, Put("/queues/ab", b"{}")) == events.Committed(4)
    assert shell.commit(5, Drop(path)) == events.Committed(5)  # with all that is below it
    assert shell.tree() == {"/queues/ab": b"{}"}
    assert shell.commit(6, Drop(path)) == events.Committed(6)


def test_numbers_of_the_counter_are_drawn_and_each_is_higher(shell: Shell) -> None:
    shell.definitions.draw(events.DrawEpoch(1))
    shell.definitions.draw(events.DrawEpoch(2))
    first, second = shell.take(events.EpochDrawn)
    assert (first.token, second.token) == (1, 2)
    assert second.epoch > first.epoch


def test_no_number_is_drawn_while_the_registry_is_away(shell: Shell) -> None:
    shell.registry.suspend()
    shell.definitions.draw(events.DrawEpoch(1))
    (failed,) = shell.take(events.CommitFailed)
    assert (failed.token, failed.error.code) == (1, "registry_away")


def test_a_base_that_was_damaged_is_told_and_heals_by_itself(shell: Shell) -> None:
    damage = Set("/base", b"x")
    shell.registry.commit([damage], None, lambda _: None)
    (told,) = shell.take(events.EpochsDamaged)
    assert "'x'" in told.problem  # type: ignore[attr-defined]
    shell.definitions.draw(events.DrawEpoch(1))
    (failed,) = shell.take(events.CommitFailed)
    assert "'x'" in str(failed.error)  # type: ignore[attr-defined]
    shell.registry.commit([Set("/base", b"0")], None, lambda _: None)
    assert shell.take(events.EpochsDamaged) == [events.EpochsDamaged("")]
    shell.definitions.draw(events.DrawEpoch(2))
    assert len(shell.take(events.EpochDrawn)) == 1


def test_a_later_leader_reads_what_the_first_one_wrote(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    assert second.take(events.Following)[-1] == events.Following(ME)
    shell.commit(1, Put(records.queue_path("a"), records.encode(RECORD)))
    shell.definitions.close()
    (elected,) = second.take(events.Elected)
    assert elected == events.Elected(2, records.Snapshot((RECORD,)))
    path = records.queue_path("a")
    assert second.commit(1, Put(path, b"{}")) == events.Committed(1)


def test_a_follower_commits_nothing(ensemble: MemoryEnsemble, shell: Shell) -> None:
    second = Shell(ensemble, OTHER)
    failed = second.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert second.tree() == {}


def test_a_leader_that_was_overtaken_commits_nothing(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    shell.registry.suspend()
    shell.run()
    shell.registry.expire(reconnect=False)
    assert len(second.take(events.Elected)) == 1
    failed = shell.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert isinstance(failed.error, RegistryAway)
    assert second.tree() == {}
    shell.registry.resume()
    assert shell.take(events.Following)[-1] == events.Following(OTHER)


def test_while_suspended_commits_fail_and_then_all_is_read_again(shell: Shell) -> None:
    shell.registry.suspend()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()]
    failed = shell.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert isinstance(failed.error, RegistryAway)
    shell.registry.resume()
    assert shell.take(events.RegistryBack)[-1] == events.RegistryBack(records.Snapshot())


def test_a_registry_that_somebody_else_changed_is_read_again(shell: Shell) -> None:
    path = records.queue_path("a")
    shell.registry.commit([Create(path, records.encode(RECORD))], None, lambda _: None)
    failed = shell.commit(1, Put(path, b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert type(failed.error) is RequestError
    back = shell.take(events.RegistryBack)[-1]
    assert back == events.RegistryBack(records.Snapshot((RECORD,)))
    assert shell.commit(2, Put(path, b"{}")) == events.Committed(2)


def test_a_write_under_an_old_epoch_is_refused(ensemble: MemoryEnsemble, shell: Shell) -> None:
    second = Shell(ensemble, OTHER)
    # The first one's session ends without its noticing: its leadership is a thing of the past.
    leadership = shell.definitions._leadership
    shell.registry.expire()
    shell.run()
    second.run()
    shell.definitions._leadership = leadership
    failed = shell.commit(1, Put("/queues/a", b"{}"))
    assert isinstance(failed, events.CommitFailed)
    assert isinstance(failed.error, NotLeader)


def test_an_unreadable_definition_stops_nobody(ensemble: MemoryEnsemble) -> None:
    first = Shell(ensemble)
    first.commit(1, Put("/queues/a", b"not json"), Put("/queues/b", b"[" * 100_000))
    first.definitions.close()
    (elected,) = Shell(ensemble, OTHER).take(events.Elected)
    assert elected.snapshot.queues == ()
    assert elected.snapshot.unreadable.keys() == {"a", "b"}


def test_documents_of_a_later_version_are_left_alone() -> None:
    snapshot = records.decode_snapshot(
        {"/queues/a": records.encode(RECORD), "/queues/a/news": b"?"}
    )
    assert snapshot == records.Snapshot((RECORD,))


# --- a leader that has stood still, or is cut off -------------------------------------------------


def test_a_leader_that_stood_still_says_nothing_until_it_knows(shell: Shell) -> None:
    (elected,) = shell.take(events.Elected)
    shell.definitions.doubt()
    assert shell.told[-1] == events.Doubted()
    assert shell.take(events.Elected) == [elected]


def test_a_leader_that_was_succeeded_while_it_stood_still_follows(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    second = Shell(ensemble, OTHER)
    shell.take(events.Elected)
    shell.registry.expire(reconnect=False)
    assert second.take(events.Elected)
    shell.definitions.doubt()
    assert shell.told[-1] == events.Doubted()
    shell.run()
    shell.registry.resume()
    assert shell.take(events.Elected) == []
    assert shell.take(events.Following)[-1] == events.Following(OTHER)


def test_a_follower_has_nothing_to_doubt(ensemble: MemoryEnsemble, shell: Shell) -> None:
    second = Shell(ensemble, OTHER)
    second.told.clear()
    second.definitions.doubt()
    assert second.told == []


def test_a_leader_that_is_cut_off_for_longer_than_its_lease_leads_again_if_nobody_else_does(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    (elected,) = shell.take(events.Elected)
    shell.registry.suspend()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()]
    shell.timers.fire()
    assert shell.take(events.RegistryLost) == [events.RegistryLost(session_ended=True)]
    shell.registry.resume()
    assert shell.take(events.Elected) == [elected], "the session was still there"


def test_a_leader_whose_session_has_ended_says_nothing_until_it_hears_who_leads(
    ensemble: MemoryEnsemble, shell: Shell
) -> None:
    shell.registry.expire(reconnect=False)
    Shell(ensemble, OTHER)
    shell.run()
    shell.registry.resume()
    shell.run()
    told = [event for event in shell.told if isinstance(event, TOLD_OF_LEADERSHIP)]
    assert told[-4:-1] == [events.RegistryLost(), events.Doubted(), events.RegistryLost()]
    assert told[-1] == events.Following(OTHER)
    shell.timers.fire()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()] * 2


def test_a_leader_whose_session_has_ended_and_that_hears_no_more_takes_care(shell: Shell) -> None:
    shell.definitions._session_changed(SessionState.LOST)
    assert shell.told[-2:] == [events.Doubted(), events.RegistryLost()]
    shell.timers.fire()
    assert shell.told[-1] == events.RegistryLost(session_ended=True)


def test_a_short_interruption_ends_no_lease(shell: Shell) -> None:
    shell.registry.suspend()
    shell.run()
    shell.registry.resume()
    shell.run()
    shell.timers.fire()
    assert shell.take(events.RegistryLost) == [events.RegistryLost()]


def test_what_stands_there_is_replaced_and_what_does_not_is_made() -> None:
    changes = (Put("/queues/a", b"1"), Put("/queues/b", b"2"))
    assert operations_for(changes, {"/queues/a"}) == [
        Set("/queues/a", b"1"),
        Create("/queues/b", b"2"),
    ]


def test_what_is_dropped_goes_from_the_leaves_up_and_nothing_beside_it() -> None:
    known = ["/queues/a", "/queues/a/rules", "/queues/a/x/y", "/queues/a/x", "/queues/ab"]
    assert operations_for([Drop("/queues/a")], known) == [
        Delete("/queues/a/x/y"),
        Delete("/queues/a/x"),
        Delete("/queues/a/rules"),
        Delete("/queues/a"),
    ]


def test_too_much_to_drop_at_once_is_dropped_before_children_first() -> None:
    foreign = [f"/queues/a/{number:05}" for number in range(DROPPED_AT_ONCE)]
    known = ["/queues/a", *foreign]
    assert surplus_of([Drop("/queues/a")], known) == []
    known += ["/queues/a/x", "/queues/a/x/y"]
    first = surplus_of([Drop("/queues/a")], known)
    assert len(first) == DROPPED_AT_ONCE
    assert first[:2] == ["/queues/a/x/y", "/queues/a/x"]
    rest = [path for path in known if path not in first]
    assert surplus_of([Drop("/queues/a"), Put("/queues/b", b"")], rest) == []


def test_below_a_path_is_what_has_its_name_and_nothing_that_only_begins_so() -> None:
    assert below({"/q/a", "/q/a/b", "/q/ab", "/q"}, "/q/a") == ["/q/a/b", "/q/a"]


@pytest.mark.parametrize(
    ("found", "mine", "remembers"),
    [
        (None, "", False),
        ("c1", "", False),
        ("c1", "c1", False),
        (None, "c1", True),
        ("", "c1", True),
    ],
)
def test_a_manager_leads_its_own_cluster_or_one_that_it_can_found_or_write_back(
    found: str | None, mine: str, remembers: bool
) -> None:
    assert identity_problem(found, mine, remembers=remembers) == ""


def test_nobody_leads_another_cluster_and_both_are_named() -> None:
    text = identity_problem("c2", "c1", remembers=True)
    assert "holds cluster c2" in text
    assert "belongs to c1" in text


def test_who_remembers_nothing_leaves_an_empty_registry_alone() -> None:
    assert "remembers nothing of cluster c1" in identity_problem(None, "c1", remembers=False)


@pytest.mark.parametrize("mine", ["c1", ""])
def test_who_finds_an_identity_that_is_none_says_what_to_set(mine: str) -> None:
    text = identity_problem("", mine, remembers=False)
    assert "holds no identity" in text
    assert f"Set it to {mine or 'the one that'}" in text
