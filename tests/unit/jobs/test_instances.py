"""Who runs jobs: registered, renewed, dead; and what an instance looks at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from job_lab import SPAN, Lab, new

from roq.errors import ConfigError
from roq.jobs import instances
from roq.jobs.instances import EXPIRE_SECONDS, LATE_SECONDS
from roq.jobs.rows import Look
from roq.jobs.states import JobStatus


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(str(tmp_path / "jobs.db"))
    yield made
    made.close()


def look(lab: Lab, owner: int = 0) -> Look:
    with lab.database.read() as connection:
        return lab.instances.look(connection, owner)


def after(lab: Lab, seconds: float) -> None:
    lab.time += int(seconds * 1_000_000)


def test_an_instance_that_renews_lives(lab: Lab) -> None:
    mine = lab.instance()
    after(lab, EXPIRE_SECONDS - 1)
    with lab.database.write() as connection:
        assert lab.instances.renew(connection, mine, ["B", "A"])
    after(lab, EXPIRE_SECONDS - 1)
    (peer,) = look(lab).peers
    assert (peer.id, peer.types, peer.wants) == (mine, ("A",), ("A", "B"))
    assert not look(lab).dead


def test_one_that_does_not_is_dead_and_buried_when_its_jobs_are_taken(lab: Lab) -> None:
    lab.submit()
    mine = lab.instance()
    lab.claim(mine)
    after(lab, EXPIRE_SECONDS)
    assert look(lab).dead
    assert [row.dead for row in lab.jobs.operate.instance_list()] == [True], "nobody has noticed"
    with lab.database.write() as connection:
        assert lab.instances.reap(connection) == 1
        assert not lab.instances.renew(connection, mine)
    assert lab.jobs.operate.instance_list() == []
    assert not look(lab).dead
    assert lab.instance() > mine, "an id is never given again"


def test_one_that_leaves_with_jobs_is_waited_for(lab: Lab) -> None:
    lab.submit()
    mine, other = lab.instance(), lab.instance()
    lab.claim(mine)
    with lab.database.write() as connection:
        lab.instances.leave(connection, mine)
        lab.instances.leave(connection, other)
    assert [row.id for row in lab.jobs.operate.instance_list()] == [mine]


def test_a_file_of_another_host_is_refused(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.instance()
    monkeypatch.setattr(instances, "host_identity", lambda: "another kernel")
    with pytest.raises(ConfigError, match="SQLite is for one host"):
        lab.instance()
    after(lab, EXPIRE_SECONDS)
    lab.instance()


def test_a_look_says_what_is_due(lab: Lab) -> None:
    mine = lab.instance()
    job = lab.submit(due=lab.time + 5_000_000)
    seen = look(lab, mine)
    assert (seen.on, seen.dispatch, seen.due, seen.late) == (True, "database", False, False)
    after(lab, 5)
    assert look(lab, mine).due
    with lab.database.write() as connection:
        lab.instances.renew(connection, mine)
        lab.store.release_due(connection)
    (run,) = lab.claim(mine)
    assert not look(lab, mine).due
    after(lab, 2 * SPAN / 1_000_000)
    assert look(lab, mine).late
    for seconds, seen_late in ((LATE_SECONDS - 1, True), (2, False)):
        after(lab, seconds)
        with lab.database.read() as connection:
            assert lab.instances.look(connection, mine, whole=False).late is seen_late
    assert look(lab, mine).late, "a whole look sees what was late long ago"
    with lab.database.write() as connection:
        assert lab.instances.end_late(connection) == 1
    assert lab.status(job) is JobStatus.CREATED
    assert not lab.finish(mine, run)
    lab.check()


@pytest.mark.parametrize("looked_before", [False, True])
def test_a_run_that_does_not_stop_waits_for_no_clock_that_was_set_back(
    lab: Lab, looked_before: bool
) -> None:
    job, mine = lab.submit(), lab.instance()
    lab.claim(mine)
    for _ in range(5 if looked_before else 0):
        with lab.database.write() as connection:
            lab.instances.tidy(connection)
    after(lab, -86_400)
    with lab.database.write() as connection:
        lab.instances.tidy(connection)
    assert not look(lab, mine).late
    after(lab, 2 * SPAN / 1_000_000 - 1)
    assert not look(lab, mine).late, "it has all of its time"
    after(lab, 1)
    assert look(lab, mine).late
    with lab.database.write() as connection:
        assert lab.instances.end_late(connection) == 1
    assert lab.status(job) is JobStatus.CREATED
    lab.check()


def test_switches_are_seen(lab: Lab) -> None:
    lab.declare("A", None)
    operate = lab.jobs.operate
    operate.switch(False, who="me")
    operate.switch(False, who="me", type="A")
    operate.dispatch("queue", who="me")
    seen = look(lab)
    assert (seen.on, seen.off, seen.dispatch) == (False, {"A"}, "queue")


def test_slots_follow_the_limit_of_a_type(lab: Lab) -> None:
    for limit in (3, 5, 2):
        lab.declare("A", limit)
        with lab.database.read() as connection:
            number = lab.database.run(connection, "SELECT count(*) FROM job_slot").scalar_one()
        assert (number, look(lab).limits["A"].cluster_limit) == (limit, limit)
    lab.declare("A", None)
    assert look(lab).limits["A"].cluster_limit is None


def test_how_far_a_run_is_survives_its_owner(lab: Lab) -> None:
    lab.submit_all([new()])
    mine = lab.instance()
    (run,) = lab.claim(mine)
    with lab.database.write() as connection:
        lab.instances.save(connection, mine, [(run, 41)])
    lab.kill(mine)
    (again,) = lab.claim(lab.instance())
    assert again.saved == 41
