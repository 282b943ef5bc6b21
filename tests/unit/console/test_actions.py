"""What an operator can change: said first, done as said, by nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from paper_console import SCRIPT, PaperConsole, described, host, summary

from roq.console.actions import ACTIONS
from roq.errors import Unavailable

ABOUT = {"queue": "load", "exchange": "x1", "host": "127.0.0.1", "group": "billing"}
FIELDS: dict[str, dict[str, str]] = {
    "create-queue": {"name": "new", "durability": "none", "ring_bytes": "1000000"},
    "seek-group": {"to": "earliest"},
    "set-rules": {"exchanges_max": "8", "policy": "static"},
}
DONE: dict[str, tuple[Any, ...]] = {
    "create-queue": (
        "create_queue", "new",
        {"host": None, "durability": "none", "limits": {"ring_bytes": 1_000_000}},
    ),
    "start-queue": ("start_queue", "load", {}),
    "stop-queue": ("stop_queue", "load", {}),
    "remove-queue": ("remove_queue", "load", {}),
    "add-exchange": ("add_exchange", "load", None, {}),
    "remove-exchange": ("remove_exchange", "load", "x1", {}),
    "forget-exchange": ("forget_exchange", "load", "x1", {}),
    "cordon-host": ("cordon_host", "127.0.0.1", {}),
    "uncordon-host": ("uncordon_host", "127.0.0.1", {}),
    "drain-host": ("drain_host", "127.0.0.1", {}),
    "remove-host": ("remove_host", "127.0.0.1", {"force": False}),
    "pause-group": ("pause_group", "load", "billing", {}),
    "resume-group": ("resume_group", "load", "billing", {}),
    "seek-group": ("seek_group", "load", "billing", "earliest", {}),
    "delete-group": ("delete_group", "load", "billing", {}),
}  # fmt: skip
OF_THE_CLUSTER = [name for name in ACTIONS if "letters" not in name]


def path_of(name: str) -> str:
    places = "&".join(f"{place}={ABOUT[place]}" for place in ACTIONS[name].places)
    return f"/do/{name}?{places}"


def filled(console: PaperConsole, name: str) -> dict[str, str]:
    """The form of an action, filled in as its page says."""
    action = ACTIONS[name]
    page = path_of(name)
    typed = {"typed": ABOUT[action.typed]} if action.typed else {}
    return {
        "form": console.form(page), "stamp": console.field(page, "stamp"), **typed,
        **{place: ABOUT[place] for place in action.places}, **FIELDS.get(name, {}),
    }  # fmt: skip


@pytest.mark.parametrize("name", OF_THE_CLUSTER)
def test_an_action_says_what_it_will_do_and_does_it(name: str) -> None:
    with PaperConsole() as console:
        page = console.get(path_of(name))
        assert page.status == 200
        assert ACTIONS[name].verb in page.text
        assert console.cluster.done == [], "to look changes nothing"
        answer = console.post(f"/do/{name}", filled(console, name))
        assert (answer.status, answer.text) == (303, "")
        if name in DONE:
            assert console.cluster.done == [DONE[name]]
        back = console.get(answer.header("location").replace("/?", "/audit?"))
        assert "done" in back.text
        (deed,) = console.console.audit.deeds()
        assert (deed.state, deed.who) == ("done", "operator at 127.0.0.1")


def test_rules_that_are_not_in_the_form_stay() -> None:
    with PaperConsole() as console:
        console.post("/do/set-rules", filled(console, "set-rules"))
        ((command, queue, rules, _),) = console.cluster.done
        assert (command, queue) == ("set_rules", "load")
        assert (rules.exchanges_max, rules.policy, rules.cooldown_seconds) == (8, "static", 10)


def test_a_drain_says_which_queues_lose_a_log_by_it() -> None:
    with PaperConsole() as console:
        child = {
            "Child": "load.x1", "Role": "exchange", "Queue": "load", "Number": 1,
            "State": "running", "Reason": "", "Restarts": 0, "Epoch": 1, "Pid": 7,
        }  # fmt: skip
        console.cluster.all_hosts = [host(Children=[child])]
        page = path_of("drain-host")
        assert "have logs there" not in console.get(page).text
    with PaperConsole() as console:
        console.cluster.all_hosts = [host(Children=[child])]
        console.cluster.rows = [summary(Durability="flush"), summary("other", Durability="flush")]
        assert "come: load. To keep them" in console.get(page).text


@pytest.mark.parametrize("word", ["", "0" * 64])
def test_a_form_of_elsewhere_changes_nothing(word: str) -> None:
    with PaperConsole() as console:
        form = filled(console, "stop-queue") | {"form": word}
        assert console.post("/do/stop-queue", form).status == 403
        assert console.cluster.done == []


def test_who_may_only_look_changes_nothing() -> None:
    with PaperConsole(read_only=True) as console:
        assert console.get("/do/stop-queue?queue=load").status == 403
        console.get("/")
        assert console.post("/do/stop-queue", {"queue": "load"}).status == 403
        assert console.cluster.done == []


def test_a_form_is_about_what_its_page_has_shown() -> None:
    with PaperConsole() as console:
        form = filled(console, "stop-queue")
        console.cluster.description = described(QueueId="cd")
        answer = console.post("/do/stop-queue", form)
        assert answer.status == 409
        assert "it has changed" in answer.text
        assert console.cluster.done == []


def test_what_is_lost_for_good_wants_its_name() -> None:
    with PaperConsole() as console:
        form = filled(console, "remove-queue") | {"typed": "lod"}
        answer = console.post("/do/remove-queue", form)
        assert (answer.status, console.cluster.done) == (409, [])
        assert "type load to confirm" in answer.text


@pytest.mark.parametrize("name", ["remove-exchange", "forget-exchange"])
def test_an_exchange_whose_log_goes_says_what_is_lost_and_wants_its_name(name: str) -> None:
    with PaperConsole() as console:
        console.cluster.description = described(Durability="flush")
        text = console.get(path_of(name)).text
        assert "for those" in text
        assert "named publishers" in text
        assert 'name="typed"' in text
        answer = console.post(f"/do/{name}", filled(console, name) | {"typed": ""})
        assert (answer.status, console.cluster.done) == (409, [])
        console.post(f"/do/{name}", filled(console, name))
        assert console.cluster.done == [DONE[name]]


def test_an_exchange_in_memory_goes_without_its_name_and_without_a_loss() -> None:
    with PaperConsole() as console:
        text = console.get(path_of("remove-exchange")).text
        assert "No message is lost" in text
        assert 'name="typed"' not in text


def test_an_action_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with PaperConsole() as console:
        form = filled(console, "stop-queue")

        def refuse(_: str) -> None:
            raise Unavailable(f"no answer {SCRIPT}")

        monkeypatch.setattr(console.cluster, "stop_queue", refuse, raising=False)
        where = console.post("/do/stop-queue", form).header("location")
        text = console.get(where).text
        assert "no answer &lt;script&gt;" in text
        assert SCRIPT not in text


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [("create-queue", {"ring_bytes": "-1"}, "whole number"),
     ("create-queue", {"ring_bytes": "9" * 40}, "whole number"),
     ("set-rules", {"exchanges_min": "9", "exchanges_max": "2"}, "more than 2 at most"),
     ("seek-group", {"to": "time", "time": "yesterday"}, "neither earliest nor latest")],
)  # fmt: skip
def test_what_cannot_be_is_told(name: str, wrong: dict[str, str], says: str) -> None:
    with PaperConsole() as console:
        where = console.post(f"/do/{name}", filled(console, name) | wrong).header("location")
        assert says in console.get(where).text
        assert console.cluster.done == []


def test_what_is_about_nothing_is_refused() -> None:
    with PaperConsole() as console:
        assert console.get("/do/stop-queue").status == 400
        assert console.get("/do/stop-queue?queue=nix").status == 404
        assert console.get("/do/nothing").status == 404
        assert console.post("/do/nothing", {}).status == 404
