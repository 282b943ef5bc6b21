"""Where a manager may lead."""

import pytest

from roq.gcm.persistence.identity import problem


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
    assert problem(found, mine, remembers=remembers) == ""


def test_nobody_leads_another_cluster_and_both_are_named() -> None:
    text = problem("c2", "c1", remembers=True)
    assert "holds cluster c2" in text
    assert "belongs to c1" in text


def test_who_remembers_nothing_leaves_an_empty_registry_alone() -> None:
    assert "remembers nothing of cluster c1" in problem(None, "c1", remembers=False)


@pytest.mark.parametrize("mine", ["c1", ""])
def test_who_finds_an_identity_that_is_none_says_what_to_set(mine: str) -> None:
    text = problem("", mine, remembers=False)
    assert "holds no identity" in text
    assert f"Set it to {mine or 'the one that'}" in text
