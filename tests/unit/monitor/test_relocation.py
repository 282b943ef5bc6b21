"""One publisher on its way: where it leaves, and what that changes."""

from __future__ import annotations

import pytest

from roq.model import PublisherId
from roq.monitor.relocation import Relocation

X1, X2, X3 = (1, 7), (2, 7), (3, 7)


def relocation(sources: list[tuple[int, int]], targets: list[tuple[int, int]]) -> Relocation:
    return Relocation(
        publisher=PublisherId(b"p"), epoch=9, sources=tuple(sources), targets=tuple(targets),
        infos=[], load=600.0, reason="too much", repeat_at=1.0,
    )  # fmt: skip


def test_it_leaves_where_it_is_not_to_publish_any_more() -> None:
    assert relocation([X1, X2], [X2, X3]).left == [X1]
    assert relocation([X1], [X1, X2]).left == []


@pytest.mark.parametrize(
    ("sources", "targets", "changes"),
    [
        ([X1], [X2], {X1: -600.0, X2: 600.0, X3: 0.0}),
        ([X1], [X1, X2, X3], {X1: -400.0, X2: 200.0, X3: 200.0}),
        ([X1, X2], [X3], {X1: -300.0, X2: -300.0, X3: 600.0}),
    ],
)
def test_load_is_shared_evenly_and_none_of_it_is_lost(
    sources: list[tuple[int, int]],
    targets: list[tuple[int, int]],
    changes: dict[tuple[int, int], float],
) -> None:
    found = relocation(sources, targets)
    assert {key: found.change_at(key) for key in changes} == changes
    assert sum(changes.values()) == 0
