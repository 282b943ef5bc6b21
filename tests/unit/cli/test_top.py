"""`roq top` prints what its followers tell: once, again and again, or at a terminal until a key."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from roq.cli import top as module
from roq.cli.top import top
from roq.client.admin.board import QueueView
from roq.client.operate.followers import QueueReport
from roq.errors import RoQError

C = TypeVar("C")


def report(queue: str, state: str = "running", reason: str = "") -> QueueReport:
    view = QueueView(
        queue=queue, limit=1e6, publisher_count=0, subscriber_count=0, waiting=0, messages_in=0.0,
        bytes_in=0.0, messages_out=0.0, bytes_out=0.0, latency_ms=0.0, lost=0, moves=0,
        exchanges=[], publishers=[], subscribers=[], events=[],
    )  # fmt: skip
    return QueueReport(state=state, reason=reason, view=view)


class PaperCluster:
    """Has the queue `orders`."""

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def queue_exists(self, name: str) -> bool:
        return name == "orders"


class PaperFollowers:
    """In the place of what follows queues: Ctrl-C is pressed after some looks."""

    looks_until_settled = 0
    looks_until_interrupt = 3
    queues = ("orders",)
    hidden = 0
    reason = ""
    closed = 0

    def __init__(self) -> None:
        self.looks = 0
        self.browse = False
        self.shown: list[str | None] = []

    def __call__(self, _cluster: object, _queue: str | None, *, browse: bool) -> PaperFollowers:
        self.browse = browse
        return self

    def __enter__(self) -> PaperFollowers:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def update(self) -> None:
        self.looks += 1
        if self.looks > self.looks_until_interrupt:
            raise KeyboardInterrupt

    def show(self, queue: str | None) -> None:
        self.shown.append(queue)

    def settled(self) -> bool:
        return self.looks >= self.looks_until_settled

    @property
    def names(self) -> list[str]:
        return [*self.queues]

    def reports(self) -> list[QueueReport]:
        return [report(name, reason=self.reason) for name in self.queues]

    def ring_limit(self, _queue: str) -> int:
        return 1 << 20


@pytest.fixture
def followers(use: Callable[[C], C], monkeypatch: pytest.MonkeyPatch) -> PaperFollowers:
    use(PaperCluster())
    made = PaperFollowers()
    monkeypatch.setattr(module, "Followers", made)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    return made


def roq(*arguments: str) -> Result:
    return CliRunner().invoke(top, [*arguments])


def test_once_waits_until_there_is_something_to_show_and_prints_one_picture(
    followers: PaperFollowers,
) -> None:
    followers.looks_until_settled = 3
    done = roq("orders", "--once")
    assert (done.exit_code, followers.looks, followers.closed) == (0, 3, 1)
    assert done.stdout.startswith("orders  running")
    assert done.stdout.count("orders") == 1


def test_once_gives_up_after_the_timeout_and_says_why_nothing_came(
    followers: PaperFollowers,
) -> None:
    followers.looks_until_settled = followers.looks_until_interrupt = 1 << 30
    followers.reason = "x1 is being started"
    for arguments, why in (((), "x1 is being started"), (("--json",), "x1 is being started")):
        done = roq("orders", "--once", "--timeout", "0.1", *arguments)
        assert isinstance(done.exception, RoQError)
        assert str(done.exception) == f"no statistics within 0.1 s: {why}"
    followers.reason = ""
    assert "the monitors say nothing" in str(roq("--once", "--timeout", "0.1").exception)


def test_a_picture_comes_again_and_again_until_ctrl_c_which_is_no_error(
    followers: PaperFollowers,
) -> None:
    done = roq("orders", "--interval", "0.1", "--json")
    assert (done.exit_code, done.stderr, followers.closed) == (0, "", 1)
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["view"]["queue"] for each in documents] == ["orders"] * 4


def test_json_is_one_document_for_a_queue_and_a_list_for_all(followers: PaperFollowers) -> None:
    followers.queues = ("bills", "orders")
    listed: list[Any] = json.loads(roq("--once", "--json").stdout)
    assert [each["view"]["queue"] for each in listed] == ["bills", "orders"]
    followers.queues = ("orders",)
    assert json.loads(roq("orders", "--once", "--json").stdout)["state"] == "running"


def test_the_overview_tells_of_queues_that_are_not_followed_and_of_none(
    followers: PaperFollowers,
) -> None:
    followers.hidden = 7
    assert "… and 7 queues are not followed" in roq("--once").stdout
    followers.queues = ()
    assert "No queue yet: `roq queue create NAME`" in roq("--once").stdout


def test_a_queue_that_is_not_there_is_named(followers: PaperFollowers) -> None:
    assert str(roq("other", "--once").exception) == "there is no queue 'other'"
    assert (followers.looks, followers.closed) == (0, 1)


class PaperKeys:
    """A terminal at which these keys are pressed, one at each look."""

    there = True

    def __init__(self, *keys: str) -> None:
        self.keys = [*keys]

    @contextmanager
    def pressed(self) -> Any:
        yield self

    def wait(self, _seconds: float) -> str:
        return self.keys.pop(0)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    made = Console(file=io.StringIO(), force_terminal=True, width=100, height=30, record=True)
    monkeypatch.setattr(module, "console", lambda: made)
    return made


def test_keys_choose_the_queue_and_quit_and_the_last_picture_stays(
    followers: PaperFollowers, terminal: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    followers.looks_until_interrupt = 1 << 30
    keys = PaperKeys("x", "n", "a", "q")
    monkeypatch.setattr(module, "pressed", keys.pressed)
    assert roq("orders").exit_code == 0
    assert (keys.keys, followers.browse, followers.closed) == ([], True, 1)
    assert followers.shown[0] == "orders"
    assert followers.shown[-1] is None, "a: all of them"
    assert "QUEUE" in terminal.export_text().rstrip().splitlines()[-2]


@pytest.mark.parametrize("more", ["--once", "--json"])
def test_who_wants_one_picture_or_documents_gets_no_moving_ones(
    more: str, followers: PaperFollowers, terminal: Console
) -> None:
    assert roq("orders", more, "--interval", "0.1").exit_code == 0
    assert not followers.browse
    assert followers.shown == []
