"""What `roq dead-letter` finds, asks, publishes anew and drops."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

import roq
from roq.cli.commands import cli
from roq.client.consume.holding import ACKED, RETURNED, Holding
from roq.client.consume.message import ConsumedMessage, Settlement, messages_of
from roq.client.operate.dead_letters import GROUP
from roq.errors import Unavailable
from roq.model import LogId, PublisherId
from roq.protocol.attributes import Attributes, BatchAttributes, pack_attributes
from roq.read.message import Batch


def letter(number: int, reason: str = "timeout", topic: str = "eu", group: str = "g") -> Attributes:
    return Attributes(
        f"k{number}", ("red",),
        {
            "a": "b", "roq.dead.queue": "orders", "roq.dead.topic": topic, "roq.dead.group": group,
            "roq.dead.id": f"x1-1-{number}-0", "roq.dead.attempts": "3", "roq.dead.reason": reason,
        },
        7,
    )  # fmt: skip


class PaperCluster:
    """A cluster with these dead letters, one consumer of them, and publishers."""

    def __init__(self, *letters: Attributes, queues: tuple[str, ...] = ("orders", "orders.dead")):
        self.queues = queues
        self.messages: list[ConsumedMessage] = []
        for offset, attributes in enumerate(letters):
            packed = BatchAttributes(pack_attributes({0: attributes}), 0, 1)
            batch = Batch([b"m%d" % offset], "eu", PublisherId(b"p" * 16), 0, 0, 1, packed)
            held = Holding(LogId(1, 1), offset, 1, 0, 1, batch)
            self.messages += messages_of(held, 0, 1, self.settle)
        self.left = list(self.messages)
        self.acked: list[bytes] = []
        self.published: list[tuple[bytes, str, dict[str, Any]]] = []
        self.flushed: list[int] = []
        self.options: dict[str, Any] = {}
        self.broken = False
        self.id = b"m" * 16
        self.others: list[str] = []

    def groups(self, queue: str, group: str) -> list[SimpleNamespace]:
        assert (queue, group) == ("orders.dead", GROUP)
        who = [SimpleNamespace(id=self.id.hex(), name="me", held=1)]
        who += [SimpleNamespace(id="07", name=name, held=2) for name in self.others]
        return [SimpleNamespace(who=who)]

    def connect(self, _address: str, *, timeout: float) -> PaperCluster:
        del timeout
        return self

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def queue_exists(self, name: str) -> bool:
        return name in self.queues

    def describe(self, name: str) -> SimpleNamespace:
        if name in self.queues:
            return SimpleNamespace(exchanges=["x1"])
        raise roq.QueueNotFound(f"there is no queue {name}")

    def consumer(self, queue: str, group: str, **options: Any) -> PaperCluster:
        self.options = {"queue": queue, "group": group, **options}
        return self

    def receive(self, _wait: float) -> ConsumedMessage | None:
        return self.left.pop(0) if self.left else None

    def settle(self, held: Holding, index: int, count: int, verdict: Settlement) -> None:
        held.settle(index, count, ACKED if verdict.acked else RETURNED)
        self.acked += held.batch.payloads[index : index + count]

    def publisher(self, queue: str) -> PaperCluster:
        assert queue == "orders"
        return self

    def publish(self, payload: bytes, topic: str, **attributes: Any) -> None:
        self.published.append((payload, topic, attributes))

    def flush(self, _seconds: float) -> None:
        if self.broken and len(self.published) > 1:
            raise Unavailable("not acknowledged in time")
        self.flushed.append(len(self.published))


def run(
    monkeypatch: pytest.MonkeyPatch, cluster: PaperCluster, *arguments: str, says: str = ""
) -> Result:
    monkeypatch.setattr(roq, "connect", cluster.connect)
    return CliRunner().invoke(cli, ["dead-letter", *arguments], input=says)


def test_letters_are_listed_with_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(letter(0), letter(1, "cannot be parsed"), Attributes("no letter"))
    lines = run(monkeypatch, cluster, "list", "orders").stdout.splitlines()
    assert lines[0].split()[:3] == ["DIED", "GROUP", "TOPIC"]
    assert len(lines) == 3
    assert lines[2].endswith("cannot be parsed  x1-1-1-0")
    assert cluster.options["queue"] == "orders.dead"
    assert (cluster.options["group"], cluster.options["attempts"]) == (GROUP, 0)
    assert cluster.acked == []


def test_letters_are_listed_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = json.loads(
        run(monkeypatch, PaperCluster(letter(0)), "list", "orders", "--json").stdout
    )
    assert (row["id"], row["attempts"], row["reason"]) == ("x1-1-0-0", 3, "timeout")
    assert (row["payload"], row["properties"], row["tags"]) == ("m0", {"a": "b"}, ["red"])


def test_a_letter_is_shown_with_its_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, PaperCluster(letter(0)), "show", "orders", "x1-1-0-0").stdout
    assert shown.splitlines()[-1] == "m0"
    assert "Property a" in shown
    missing = run(monkeypatch, PaperCluster(letter(0)), "show", "orders", "x9")
    assert (missing.exit_code, missing.stdout) == (1, "")


@pytest.mark.parametrize("command", ["requeue", "purge"])
def test_where_nobody_answers_it_is_said_what_a_program_says(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = PaperCluster(letter(0))
    asked = run(monkeypatch, cluster, command, "orders")
    assert asked.exit_code == 1
    assert asked.stderr.endswith(
        "[y/N]: \nError: nobody has answered\n  Say --yes if that is meant.\n"
    )
    assert (cluster.published, cluster.acked) == ([], [])


def test_letters_go_back_as_they_were_when_that_is_agreed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(letter(0, topic="eu.be"), letter(1))
    result = run(monkeypatch, cluster, "requeue", "orders", says="y\n")
    assert "Publish 2 dead letters anew to orders?" in result.stderr
    assert result.stdout == "2 dead letters of queue orders requeued\n"
    assert cluster.published[0] == (
        b"m0", "eu.be",
        {"key": "k0", "tags": ("red",), "properties": {"a": "b"}, "priority": 7},
    )  # fmt: skip
    assert cluster.acked == [b"m0", b"m1"]


@pytest.mark.parametrize("command", ["requeue", "purge"])
def test_who_says_no_changes_nothing(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    cluster = PaperCluster(letter(0))
    result = run(monkeypatch, cluster, command, "orders", says="n\n")
    assert result.exit_code == 1
    assert (cluster.published, cluster.acked) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "payloads"),
    [(("--reason", "pars"), [b"m1"]), (("--topic", "us"), [b"m2"]), (("--group", "h"), [b"m3"]),
     (("--count", "2"), [b"m0", b"m1"]), ((), [b"m0", b"m1", b"m2", b"m3"])],
)  # fmt: skip
def test_only_those_that_are_wanted(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], payloads: list[bytes]
) -> None:
    cluster = PaperCluster(
        letter(0), letter(1, "not parsed"), letter(2, topic="us"), letter(3, group="h")
    )
    run(monkeypatch, cluster, "purge", "orders", "--yes", *arguments)
    assert cluster.acked == payloads


def test_a_rate_makes_small_steps_each_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(*map(letter, range(4)))
    result = run(monkeypatch, cluster, "requeue", "orders", "--rate", "2000", "--yes", "--json")
    assert json.loads(result.stdout) == {"ok": True, "queue": "orders", "requeued": 4}
    assert cluster.flushed == [4, 4], "of the chunk, and in the end of what is done"
    slow = PaperCluster(*map(letter, range(3)))
    run(monkeypatch, slow, "requeue", "orders", "--rate", "50.0", "--count", "1", "--yes")
    assert len(slow.published) == 1


def test_what_could_not_be_published_stays_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(letter(0), letter(1), letter(2))
    cluster.broken = True
    result = run(monkeypatch, cluster, "requeue", "orders", "--rate", "1.5", "--yes")
    assert result.exit_code == 1
    assert "1 of 3 dead letters are requeued; the others are where they were" in result.stderr
    assert cluster.acked == [b"m0"]


def test_a_second_command_says_who_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(letter(0))
    cluster.others = ["roq@desk:7"]
    result = run(monkeypatch, cluster, "list", "orders")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "roq@desk:7 is at work on the dead letters in orders.dead and holds 2" in result.stderr


def test_letters_that_were_cut_are_not_requeued(monkeypatch: pytest.MonkeyPatch) -> None:
    short = letter(1)
    short.properties["roq.dead.cut"] = "70000"
    cluster = PaperCluster(letter(0), short)
    result = run(monkeypatch, cluster, "requeue", "orders", "--yes")
    assert "not requeued, as they were too large to be kept whole: x1-1-1-0" in result.stderr
    assert cluster.acked == [b"m0"]
    shown = run(monkeypatch, PaperCluster(short), "show", "orders", "x1-1-1-0").stdout
    assert "Cut, was" in shown


def test_a_queue_that_never_had_any_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(queues=("orders",))
    result = run(monkeypatch, cluster, "list", "orders")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no dead letter" in result.stderr
    assert run(monkeypatch, cluster, "requeue", "orders").exit_code == 0
    assert run(monkeypatch, PaperCluster(queues=()), "list", "orders").exit_code == 1
    assert run(monkeypatch, cluster, "list", "orders", "--letters", "x").exit_code == 1
