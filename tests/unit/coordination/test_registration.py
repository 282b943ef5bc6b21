"""A registration whose answers come in an order that the test chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from roq.coordination.registration import Registration
from roq.coordination.registry_contract import Committed, Conflict, Create, Node, Reason
from roq.coordination.store_contract import MultiResult, Step, Store

PATH = "/hosts/h1"


class SlowStore:
    """Answers when the test says so; a read tells what stands when it is made."""

    session = 7

    def __init__(self) -> None:
        self.node: Node | None = None
        self.waiting: list[Callable[[], None]] = []
        self.commits = 0

    def read(
        self, path: str, watch: Callable[[], None] | None, done: Callable[[Node | None], None]
    ) -> None:
        seen = self.node
        self.waiting.append(lambda: done(seen))

    def multi(self, steps: list[Step], done: Callable[[MultiResult], None]) -> None:
        step = steps[-1]
        version = 0 if isinstance(step, Create) or self.node is None else self.node.version + 1
        self.node = Node(PATH, cast("bytes", step.data), version, owner=self.session)  # type: ignore[union-attr]
        self.commits += 1
        self.waiting.append(lambda: done(Committed((version,))))

    def answer(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def test_new_data_while_a_look_is_under_way_is_written_once() -> None:
    store = SlowStore()
    told: list[Committed | Conflict] = []
    registration = Registration(cast("Store", store), PATH)
    registration.keep(b"1", told.append)
    registration.changed()
    store.answer()
    registration.changed()  # as the watch does after the node was made
    registration.keep(b"2", told.append)
    registration.changed()
    store.answer()
    assert told == [Committed((0,)), Committed((1,))]
    assert store.commits == 2


def test_a_look_that_was_lost_with_its_connection_is_made_again() -> None:
    store = SlowStore()
    told: list[Committed | Conflict] = []
    registration = Registration(cast("Store", store), PATH)
    registration.keep(b"1", told.append)
    registration.changed()
    store.waiting.clear()
    registration.resume()
    store.answer()
    assert told == [Committed((0,))]


@pytest.mark.parametrize(
    ("other", "epoch_is_higher"),
    [
        (b'{"epoch": 9}', False),
        (b'{"epoch": 10, "pid": 7}', False),  # its own, of an earlier session
        (b'{"epoch": 11}', True),
        (b'{"epoch": "9"}', True),  # nothing says that it is not of a newer process
        (b"[" * 100_000, True),
        (b"", True),
    ],
)
def test_after_registration_a_node_of_another_session_has_the_name_if_its_epoch_is_higher(
    other: bytes, epoch_is_higher: bool
) -> None:
    store = SlowStore()
    told: list[Committed | Conflict] = []
    registration = Registration(cast("Store", store), PATH)
    registration.keep(b'{"epoch": 10}', told.append)
    registration.changed()
    store.answer()
    store.node = Node(PATH, other, 0, owner=6)
    registration.changed()
    store.answer()
    assert (told[1:] == [Conflict(PATH, Reason.EXISTS)]) is epoch_is_higher
    assert (store.node.data == other) is epoch_is_higher
