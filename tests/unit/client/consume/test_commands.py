"""What an operator says of groups goes to every exchange in the right words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from roq.client.consume import commands
from roq.client.consume.commands import GroupCommands
from roq.errors import InvalidName, InvalidRequest


class Operator(GroupCommands):
    """Has what the commands need of a cluster, and nothing else."""

    _engine = "engine"  # type: ignore[assignment]

    def describe(self, queue: str) -> Any:
        return f"all of {queue}"

    def _seconds(self, timeout: float | None) -> float:
        return 7.0 if timeout is None else timeout


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def order(*given: Any, **more: Any) -> list[str]:
        calls.append((*given, more["time_us"], more["to_end"]))
        return ["x1"]

    def listing(*given: Any) -> str:
        calls.append(given[:-1])
        return "groups"

    monkeypatch.setattr(commands.consumer_groups, "order", order)
    monkeypatch.setattr(commands.consumer_groups, "list_groups", listing)
    return calls


def test_each_command_has_its_word(said: list[tuple[Any, ...]]) -> None:
    one = Operator()
    for command in (one.pause_group, one.resume_group, one.delete_group):
        assert command("q", "g") == ["x1"]
    assert [call[3] for call in said] == ["pause", "resume", "delete"]
    assert {call[:3] for call in said} == {("engine", "all of q", "g")}
    assert {call[4:] for call in said} == {(7.0, 0, False)}


def test_a_group_goes_to_a_time_to_the_beginning_or_to_the_end(
    said: list[tuple[Any, ...]],
) -> None:
    one = Operator()
    for to in ("earliest", "latest", datetime(1970, 1, 2, tzinfo=UTC)):
        one.seek_group("q", "g", to, timeout=1.0)
    assert [call[3:] for call in said] == [
        ("seek", 1.0, 0, False), ("seek", 1.0, 0, True), ("seek", 1.0, 86_400_000_000, False)
    ]  # fmt: skip
    with pytest.raises(InvalidRequest, match="noon"):
        one.seek_group("q", "g", "noon")


def test_groups_are_listed_all_or_one(said: list[tuple[Any, ...]]) -> None:
    one = Operator()
    assert one.groups("q") == "groups"
    one.groups("q", "g")
    assert [call[2] for call in said] == ["", "g"]
    with pytest.raises(InvalidName):
        one.groups("q", "no name")
