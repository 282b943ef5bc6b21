"""Every page tells what the cluster says, and nothing that it says becomes part of the page."""

from __future__ import annotations

import kpi_samples
import msgspec
import pytest
from commands import until
from paper_console import SCRIPT, PaperConsole, described, group, host, service, summary

from roq.client.consume.groups import OldestMessage
from roq.client.operate.survey import Finding, Survey
from roq.console.pages import PAGES, View, failed
from roq.console.source import Connection
from roq.errors import InvalidRequest, QueueNotFound, Unavailable
from roq.protocol.requesting import Figures

PATHS = [
    path.format(queue="load", group="billing", service="answers", letter="x1-1-0-0")
    for path in PAGES
    if "/dead" not in path
] + ["/dead"]


@pytest.mark.parametrize("path", PATHS)
def test_a_page_is_shown(path: str) -> None:
    with PaperConsole() as console:
        answer = console.get(path)
        assert answer.status == 200
        assert answer.text.startswith("<!doctype html>")
        assert "live" in answer.text
        for inline in ("style=", "onclick", "javascript:", "<style", "<script>"):
            assert inline not in answer.text, "the policy forbids it"


def oldest(topic: str | None) -> OldestMessage:
    return OldestMessage(topic=topic, priority=9, seconds=61.0, exchange="x1")


@pytest.mark.parametrize("path", PATHS)
def test_what_a_cluster_says_is_text(path: str) -> None:
    with PaperConsole() as console:
        cluster = console.cluster
        cluster.rows = [summary(Reasons=[SCRIPT], Durability=SCRIPT)]
        cluster.all_hosts = [host(Reason=SCRIPT, State=SCRIPT, Left=[SCRIPT], Stuck=SCRIPT)]
        cluster.all_groups = [
            group(stalled=[SCRIPT], mode=SCRIPT, topics=[SCRIPT], oldest=[oldest(SCRIPT)]),
            group("answers", service=True),
        ]
        said = Figures(False, SCRIPT, version=SCRIPT, endpoints=[SCRIPT])
        instance = msgspec.structs.replace(service().instances[0], name=SCRIPT, figures=said)
        row = msgspec.structs.replace(service().requests[0], text=SCRIPT, state=SCRIPT, id=SCRIPT)
        cluster.all_services = [
            service(stalled=[SCRIPT], missing={SCRIPT: SCRIPT}, counts={SCRIPT: 1},
                    instances=[instance], requests=[row])
        ]  # fmt: skip
        cluster.description = described(Reasons=[SCRIPT], Monitor=SCRIPT, Durability=SCRIPT)
        trouble = Finding(role=SCRIPT, name=SCRIPT, address=SCRIPT, state=SCRIPT, ready=False,
                          trouble=SCRIPT)  # fmt: skip
        console.source.survey = Survey((trouble,), (SCRIPT,))
        move = kpi_samples.move(0.0, SCRIPT, "accepted").document
        console.source.tell(move)  # type: ignore[arg-type]
        console.console.audit.begin(SCRIPT, SCRIPT, {})
        text = console.get(path).text
        assert SCRIPT not in text
        assert "<script>" not in text
        if path != "/dead":
            assert "&lt;script&gt;" in text


def test_the_overview_tells_what_does_not_go_on() -> None:
    with PaperConsole() as console:
        assert "Everything goes on" in console.get("/").text
        console.cluster.rows = [summary(Running=False, State="stopped")]
        console.source.looks.forget()
        # What was looked at before is shown as long as a new look takes.
        assert until(lambda: "it is stopped: publishers wait" in console.get("/").text, 30)


def test_why_a_cluster_is_away_is_one_sentence() -> None:
    with PaperConsole() as console:
        console.source._connection = Connection("nothing listens: start one.", 1.0)
        assert "UTC: nothing listens: start one. <span" in console.get("/").text


def test_a_queue_page_has_its_moves_publishers_and_rules() -> None:
    with PaperConsole(links=()) as console:
        move = kpi_samples.move(0.0, "ab" * 16, "accepted", pause=12.5).document
        console.source.tell(move)  # type: ignore[arg-type]
        text = console.get("/queues/load").text
        for part in ("x1 → x2", "12.5 ms", "abababab", "balanced", "billing", "Add exchange"):
            assert part in text


def test_a_group_is_shown_with_its_oldest_messages() -> None:
    with PaperConsole() as console:
        every = [oldest("eu.be"), oldest(None), *[oldest("t")] * 20]
        console.cluster.all_groups = [group(oldest=every, unseen_seconds=7.0)]
        text = console.get("/queues/load/groups/billing").text
        for part in ("eu.be", "all others", "and 2 that are younger", "Not all was looked at"):
            assert part in text
        console.cluster.all_groups = [group()]
        console.source.looks.forget()
        page = "/queues/load/groups/billing"
        assert until(lambda: "Nothing is open" in console.get(page).text, 30)


def test_services_are_listed_and_shown_with_their_instances() -> None:
    with PaperConsole() as console:
        console.cluster.all_services = [service(stalled=["all are busy"])]
        text = console.get("/services").text
        for part in ("/queues/load/services/answers", ">40<", ">47<", "2.0 kB", "all are busy"):
            assert part in text
        assert "billing" not in text, "a consumer group is no service"
        text = console.get("/queues/load/services/answers").text
        for part in ("ann", "v7", "12.5 ms", "answers.create", "load.r1", "Ended: done",
                     "mean 0.001 s", "send_attempts", "all are busy"):  # fmt: skip
            assert part in text
        assert console.get("/queues/load/services/nix").status == 404


def test_a_service_that_does_not_tell_does_not_hide_the_others() -> None:
    with PaperConsole() as console:
        console.cluster.all_groups.append(group("mute", service=True))
        text = console.get("/services").text
        assert "queue load has no service mute" in text
        assert "/queues/load/services/answers" in text


def test_who_may_only_look_is_offered_nothing() -> None:
    with PaperConsole(read_only=True) as console:
        for path in PATHS:
            assert "/do/" not in console.get(path).text
        assert "read only" in console.get("/").text


def test_errors_have_the_status_that_fits() -> None:
    kinds = [QueueNotFound("x"), InvalidRequest("x"), Unavailable("x")]
    assert [failed(each).status for each in kinds] == [404, 400, 503]
    assert isinstance(failed(kinds[2]), View)
    assert failed(kinds[2]).live, "it goes on by itself when the cluster is back"
    with PaperConsole() as console:
        missing = console.get("/queues/nix")
        assert missing.status == 404
        assert "does not exist" in missing.text
        assert console.get("/queues/load/groups/nix").status == 404
        assert console.get(f"/{SCRIPT}").status == 404
        assert SCRIPT not in console.get(f"/{SCRIPT}").text
