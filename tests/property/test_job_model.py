"""Everything that can happen to a few jobs and two instances, in every order, with the real SQL.

Each rule of that SQL is left out once: then a promise must be broken somewhere.
"""

from __future__ import annotations

import pytest
from job_model import Broken, JobModel, plan

from roq.jobs import instances

ONE = ({},)
KEY = ({"key": "k"}, {"key": "k"})
PLANS = {
    "each trouble": plan(kinds="crash pause leave unknown raise stop late", troubles=1),
    "two troubles": plan(kinds="crash pause unknown late", jobs=ONE, threads=2),
    "not restartable": plan(kinds="crash pause late", jobs=({"restartable": False},)),
    "limit": plan(kinds="crash pause late unknown", troubles=1, limit=1),
    "queue": plan(kinds="crash loss double stop", queue=True, jobs=ONE),
    "two by queue": plan(kinds="pause late loss double", queue=True, troubles=1),
    "key": plan(kinds="crash raise pause", jobs=KEY, troubles=1),
    "block": plan(kinds="pause", troubles=1, threads=2),
}
DEAD_ARE_KEPT = "job.status = 'RUNNING' AND job.owner = job_instance.id)"
SMALL = {
    "pause": plan(kinds="pause", troubles=1, jobs=ONE),
    "unheard": plan(kinds="unknown", troubles=1, jobs=ONE),
    "leave": plan(kinds="leave", troubles=1, jobs=ONE),
    "limit and crash": plan(kinds="crash", troubles=1, limit=1),
}
RULES = [
    # the rule, a plan that needs it, {the rule in SQL: what is left of it}, what is noticed
    ("the end of a run names its token", "two troubles",
     {" AND job.token = d.token AND job.owner": " AND job.owner"}, "outdated, was taken"),
    ("… and its owner, and that it runs", "two troubles",
     {" AND job.owner = d.owner AND (job.status || '') = 'RUNNING' RETURNING": " RETURNING"},
     "outdated, was taken"),
    ("a claim names the token", "queue",
     {" AND job.token = d.token AND job.type": " AND job.type"}, "a message about 1 has begun"),
    ("… and that it waits", "queue",
     {" AND job.token = d.token AND job.type": " AND job.type",
      " AND (job.status || '') = 'CREATED' AND job.held = '' RETURNING": " RETURNING"},
     "two valid runs"),
    ("a claim makes a new token", "queue",
     {"token = job.token + 1, owner": "owner"}, "has begun run 1"),
    ("a dead instance claims nothing", "pause",
     {" FROM job_instance WHERE id = :owner AND dead = 0": ""},
     "is stuck"),
    ("one that renews itself is not dead", "two troubles",
     {"WHERE dead = 0 AND expires <= :now": "WHERE dead = 0 AND :now > 0"}, "whose owner lives"),
    ("the dead do not rise", "block",
     {" WHERE id = :owner AND dead = 0 RETURNING id": " WHERE id = :owner RETURNING id"},
     "takes itself for alive"),
    ("the dead are there as long as their runs", "block",
     {DEAD_ARE_KEPT: "job.owner = 0)"}, "is stuck"),
    ("… and those that leave", "leave",
     {"job.status = 'RUNNING' AND job.owner = :owner)": "job.owner = 0)"}, "is stuck"),
    ("what was claimed unheard is given back", "unheard",
     {" FROM job WHERE status = 'RUNNING' AND owner = :owner": " FROM job WHERE owner = 0"},
     "is stuck"),
    ("slots of others are theirs", "limit",
     {" AND owner IS NULL AND number >= 0": " AND number >= 0"}, "the limit is 1"),
    ("… as long as they live", "limit and crash",
     {"i.id = job_slot.owner AND i.dead = 0)": "i.id = 0)"}, "the limit is 1"),
    ("… and no longer", "limit and crash",
     {" WHERE owner IS NOT NULL AND NOT EXISTS": " WHERE owner = 0 AND NOT EXISTS"}, "is stuck"),
    ("slots that are not needed are given back", "limit and crash",
     {"SET owner = NULL WHERE type = :type AND number": "SET owner = owner WHERE number"},
     "is stuck"),
    ("what is lost is sent again", "queue",
     {"dispatched < :before": "dispatched < 1 AND :before > 0"}, "is stuck"),
    ("one that runs keeps its key", "key",
     {"o.held = '' AND o.status IN ('CREATED', 'RUNNING')":
      "o.held = '' AND o.status = 'CREATED'"}, "two jobs of one key"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _one_at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a plan is named so, a block of the dead's runs is one."""
    if "block" in request.node.callspec.params.values():
        monkeypatch.setattr(instances, "BLOCK", 1)


@pytest.mark.parametrize("name", PLANS)
def test_no_order_of_events_breaks_a_promise(name: str) -> None:
    assert JobModel(PLANS[name]).explore().states > 20


@pytest.mark.parametrize(("rule", "name", "breaks", "noticed"), RULES)
def test_without_a_rule_a_promise_is_broken(
    rule: str, name: str, breaks: dict[str, str], noticed: str
) -> None:
    with pytest.raises(Broken, match=noticed):
        JobModel((PLANS | SMALL)[name], breaks).explore()
