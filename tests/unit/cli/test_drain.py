"""`roq host drain --wait` and its neighbours, against a cluster of paper."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import roq
from roq.cli import drain as module
from roq.cli import hosts as commands
from roq.cli.hosts import host
from roq.client.admin.kept_logs import KeptLog
from roq.client.admin.views import Listing
from roq.errors import HostNotFound, Unavailable
from roq.protocol.public_answers import FromMemory, HostSummary, QueueSummary


def summary(schedule: str = "draining", *left: str, **more: object) -> HostSummary:
    values: dict[str, object] = {
        "host": "h1", "control": "tcp://h1:5100", "exchanges": len(left), "monitors": 0,
        "exchange_max": 0, "cpu": 0.0, "memory_bytes": 0, "state": "live", "children": [],
        "schedule": schedule, "left": list(left), **more,
    }  # fmt: skip
    return HostSummary(**values)  # type: ignore[arg-type]


class PaperCluster:
    """Answers `hosts()` with one row after the other, the last one for ever."""

    def __init__(self, *rows: HostSummary | BaseException | None) -> None:
        self.rows = list(rows)
        self.asked: list[tuple[str, str]] = []

    def connect(self, _address: str, *, timeout: float) -> PaperCluster:
        assert timeout > 0
        return self

    def __enter__(self) -> PaperCluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def queues(self) -> Listing[QueueSummary]:
        return Listing([], None)

    def hosts(self) -> Listing[HostSummary]:
        row = self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]
        if isinstance(row, BaseException):
            raise row
        return Listing([row] if row is not None else [], None)

    def _tell(self, command: str, name: str) -> None:
        if name == "h9":
            raise HostNotFound("host h9 is not registered")
        self.asked.append((command, name))

    def drain_host(self, name: str, *, timeout: float) -> None:
        assert timeout > 0
        self._tell("drain", name)

    def cordon_host(self, name: str, *, timeout: float) -> None:
        assert timeout > 0
        self._tell("cordon", name)

    def uncordon_host(self, name: str, *, timeout: float) -> None:
        assert timeout > 0
        self._tell("uncordon", name)

    def remove_host(self, name: str, *, force: bool, timeout: float) -> None:
        assert timeout > 0
        self._tell("remove" + " by force" * force, name)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)


def run(
    monkeypatch: pytest.MonkeyPatch, cluster: PaperCluster, *words: str, said: str | None = None
) -> tuple[int, str]:
    monkeypatch.setattr(roq, "connect", cluster.connect)
    result = CliRunner().invoke(host, [*words], input=said)
    return result.exit_code, result.output


@pytest.mark.parametrize("command", ["cordon", "uncordon", "drain", "remove"])
def test_each_says_what_is_so_now(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    cluster = PaperCluster(None)
    code, text = run(monkeypatch, cluster, command, "h1")
    assert (code, cluster.asked) == (0, [(command, "h1")])
    assert text.startswith("host h1 ")
    assert run(monkeypatch, cluster, command, "h9")[0] == 1
    assert run(monkeypatch, cluster, command, "h1", "--json") == (0, '{"ok": true, "host": "h1"}\n')


def test_force_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(None)
    assert run(monkeypatch, cluster, "remove", "h1", "--force")[0] == 0
    assert cluster.asked == [("remove by force", "h1")]


def test_what_is_left_is_told_until_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while another manager begins to lead."""
    cluster = PaperCluster(
        summary("draining", "x1 of q", "the monitor of q"),
        Unavailable("nobody answers"),
        summary("draining", state="awaited"),
        summary("draining", "the monitor of q"),
        summary("draining"),
    )
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code == 0
    assert "left on h1: x1 of q, the monitor of q\n" in text
    assert text.endswith("host h1 holds nothing\n")


def test_no_room_elsewhere_ends_the_wait_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.01)
    cluster = PaperCluster(summary("draining", "x1 of q", stuck="no host can take it: h2 is full"))
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code == 1
    assert "h2 is full" in text
    assert "roq host uncordon h1" in text


def test_a_drain_that_takes_too_long_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining", "x1 of q (1 subscriber not at its end yet)"))
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait", "--within", "1")
    assert code == 1
    assert "1 subscriber not at its end yet" in text


def test_a_drain_that_is_taken_back_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining", "x1 of q"), summary("active"))
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code == 1
    assert "not being drained any more" in text


def test_an_interrupted_wait_says_that_the_drain_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining", "x1 of q"), KeyboardInterrupt())
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code != 0
    assert "host h1 goes on being drained; `roq host uncordon h1` takes it back" in text


def test_a_list_from_memory_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining"))
    memory = Listing([summary("draining")], FromMemory(seconds=1, reason="away"))
    monkeypatch.setattr(cluster, "hosts", lambda: memory)
    assert run(monkeypatch, cluster, "drain", "h1", "--wait", "--within", "1")[0] == 1


def test_the_list_shows_what_is_placed_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining", "x1 of q", stuck="h2 is full"))
    text = run(monkeypatch, cluster, "list")[1]
    assert "draining" in text
    assert "left on h1: x1 of q" in text
    assert "host h1 cannot be drained: h2 is full" in text
    assert "drained" in run(monkeypatch, PaperCluster(summary("draining")), "list")[1]
    assert "cordoned" in run(monkeypatch, PaperCluster(summary("cordoned")), "list")[1]
    lost = summary("draining", "x1 of q", state="lost", reason="gone")
    assert "host h1 is lost: gone" in run(monkeypatch, PaperCluster(lost), "list")[1]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a log on the host, and one of which nobody knows what it holds."""
    found = [KeptLog("orders", "x1", 1_234), KeptLog("work", "x2", None)]
    monkeypatch.setattr(commands, "logs_on", lambda _, name: found if name == "h1" else [])


@pytest.mark.parametrize("more", [(), ("--json",), ("--wait",)])
def test_logs_are_removed_by_nobody_who_has_not_said_so(
    monkeypatch: pytest.MonkeyPatch, logs: None, more: tuple[str, ...]
) -> None:
    cluster = PaperCluster(summary("draining"))
    code, text = run(monkeypatch, cluster, "drain", "h1", *more)
    assert (code, cluster.asked) == (1, [])
    assert "queue orders, log of x1: up to 1,234 batches of messages\n" in text
    assert "queue work, log of x2" in text
    assert "SIGTERM" in text
    assert "host h1 is not drained: 2 logs would be removed, and nobody can be asked here" in text
    assert "--yes" in text
    assert run(monkeypatch, cluster, "drain", "h1", "--yes", *more)[0] == 0
    assert cluster.asked == [("drain", "h1")]
    assert run(monkeypatch, cluster, "drain", "h2", *more[:1] * (more == ("--json",)))[0] == 0


@pytest.mark.parametrize(("said", "asked"), [("n\n", []), ("y\n", [("drain", "h1")])])
def test_whoever_sits_there_is_asked(
    monkeypatch: pytest.MonkeyPatch, logs: None, said: str, asked: list[tuple[str, str]]
) -> None:
    monkeypatch.setattr(commands, "_somebody_is_there", lambda: True)
    cluster = PaperCluster(None)
    code, text = run(monkeypatch, cluster, "drain", "h1", said=said)
    assert (code == 0, cluster.asked) == (bool(asked), asked)
    assert "Drain it, and remove them?" in text
