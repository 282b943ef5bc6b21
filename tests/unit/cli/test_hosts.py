"""`roq host` and its verbs, against a cluster of paper: what is told, asked and passed on."""

from __future__ import annotations

import json

import pytest
from paper_hosts import PaperCluster, run, summary

from roq.cli import drain
from roq.cli import hosts as commands
from roq.client.admin.kept_logs import KeptLog
from roq.client.admin.views import Listing
from roq.protocol.public_answers import FromMemory, ProcessSummary


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "LOOK_SECONDS", 0.001)


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


def test_an_interrupted_wait_says_that_the_drain_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PaperCluster(summary("draining", "x1 of q"), KeyboardInterrupt())
    code, text = run(monkeypatch, cluster, "drain", "h1", "--wait")
    assert code != 0
    assert "host h1 goes on being drained; `roq host uncordon h1` takes it back" in text


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


def test_a_program_that_wants_json_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, logs: None
) -> None:
    monkeypatch.setattr(commands, "_somebody_is_there", lambda: True)
    cluster = PaperCluster(None)
    code, text = run(monkeypatch, cluster, "drain", "h1", "--json", said="y\n")
    assert (code, cluster.asked) == (1, [])
    assert "nobody can be asked here" in text


def test_a_process_that_is_not_well_is_told_below_the_table_while_its_host_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = ProcessSummary(
        child="orders.x1", role="exchange", queue="orders", number=1, state="failed",
        reason="five crashes", restarts=5, epoch=1, pid=0,
    )  # fmt: skip
    full = summary("active", exchange_max=4, provided=True, children=[child], memory_bytes=3_000)
    text = run(monkeypatch, PaperCluster(full), "list")[1]
    row = text.splitlines()[1].split()
    assert row[:5] == ["h1", "live", "0", "of", "4"]
    assert row[-4:] == ["3.0", "kB", "yes", "tcp://h1:5100"]
    assert " yes " not in run(monkeypatch, PaperCluster(summary()), "list")[1]
    assert "orders.x1 on h1 is failed: five crashes\n" in text
    lost = summary("active", state="lost", children=[child])
    assert "orders.x1" not in run(monkeypatch, PaperCluster(lost), "list")[1]


def test_a_list_from_memory_says_so_and_an_empty_one_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = PaperCluster(None)
    assert "No host yet: `roq host --config" in run(monkeypatch, cluster, "list")[1]
    memory = Listing([summary("active")], FromMemory(seconds=7, reason="the registry is away"))
    monkeypatch.setattr(cluster, "hosts", lambda: memory)
    assert "the registry is away" in run(monkeypatch, cluster, "list")[1]
    (row,) = json.loads(run(monkeypatch, cluster, "list", "--json")[1])
    assert (row["host"], row["from_memory"]["seconds"]) == ("h1", 7)


def test_without_a_verb_the_host_manager_runs_and_with_one_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[tuple[object, object]] = []
    monkeypatch.setattr(commands, "run_host_manager", lambda *given: ran.append(given))
    assert run(monkeypatch, PaperCluster(None), "--ready-fd", "7")[0] == 0
    assert run(monkeypatch, PaperCluster(None), "list")[0] == 0
    assert ran == [(None, 7)]
