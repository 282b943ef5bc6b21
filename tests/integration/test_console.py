"""The web console and a real cluster: what it shows is so, and what is wanted there is done."""

from __future__ import annotations

import http.client
import json
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import pytest
from browser import PROGRAM, Browser, browser
from commands import DEADLINE_SECONDS, read_ready, started, until
from job_lab import TROUBLE, Lab, new

import roq
from roq.client.admin.views import ScalingRules
from roq.console.actions import ACTIONS
from roq.console.job_pages import JOB_ACTIONS, JOB_PAGES
from roq.console.pages import PAGES
from roq.console.server import ConsoleServer
from roq.console.settings import ConsoleSettings, MetricLink
from roq.jobs.rows import Ended
from roq.jobs.states import JobStatus, RunEnd
from roq.testing import RunningCluster, cluster

pytestmark = pytest.mark.integration


@contextmanager
def console(address: str, **settings: object) -> Iterator[str]:
    """A console of a cluster; gives its address without the slash at the end."""
    ready = threading.Event()
    given = ConsoleSettings(cluster=address, port=0, **settings)  # type: ignore[arg-type]
    server = ConsoleServer(given, lambda _: ready.set())
    thread = threading.Thread(target=server.serve_until_told)
    thread.start()
    try:
        assert ready.wait(DEADLINE_SECONDS)
        yield server.url.rstrip("/")
    finally:
        server.stop()
        thread.join()


class Client:
    """A browser without JavaScript."""

    def __init__(self, base: str) -> None:
        self._place = urlsplit(base).netloc
        self._cookie = ""

    def get(self, path: str) -> str:
        status, _, text = self._ask("GET", path, "")
        assert status == 200, text
        return text

    def do(self, action: str, places: dict[str, str], **fields: str) -> str:
        """Confirm an action; gives the page that tells of it."""
        page = self.get(f"/do/{action}?{urlencode(places)}")
        hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
        status, where, text = self._ask(
            "POST", f"/do/{action}", urlencode({**hidden, **places, **fields})
        )
        assert status == 303, text
        return self.get(where)

    def _ask(self, method: str, path: str, body: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(self._place, timeout=DEADLINE_SECONDS)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": self._cookie}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        self._cookie = (answer.getheader("Set-Cookie") or self._cookie).partition(";")[0]
        text = answer.read().decode()
        connection.close()
        return answer.status, answer.getheader("Location") or "", text

    def fragments(self, path: str) -> Iterator[dict[str, str]]:
        """What changes on a page."""
        connection = http.client.HTTPConnection(self._place, timeout=DEADLINE_SECONDS)
        connection.request("GET", f"/live?{urlencode({'page': path})}")
        answer = connection.getresponse()
        try:
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            connection.close()


def test_a_queue_is_made_used_and_removed_by_forms(roq_cluster: RunningCluster) -> None:
    about = {"queue": "web"}
    with console(roq_cluster.address) as base, roq_cluster.connect() as ours:
        client = Client(base)
        page = client.do("create-queue", {}, name="web", durability="none")
        assert "queue web is running" in page
        with ours.publisher("web", name="shop") as publisher:
            publisher.publish(b"x", topic="eu")
            news = client.fragments("/queues/web")
            assert any("shop" in each.get("live_publishers", "") for each in news)
        with ours.consumer("web", "billing") as consumer:
            message = consumer.receive(DEADLINE_SECONDS)
            assert message is not None
            message.reject("<b>bad</b>")
            consumer.flush(DEADLINE_SECONDS)
            paused = client.do("pause-group", {**about, "group": "billing"})
            assert "paused" in paused
            assert ours.groups("web", "billing")[0].paused
        assert "it is paused" in client.get("/") or until(
            lambda: "it is paused" in client.get("/"), DEADLINE_SECONDS
        )
        rules = client.do("set-rules", about, exchanges_max="3", latency_ms="7")
        assert "new scaling rules" in rules
        assert (ours.get_rules("web").exchanges_max, ours.get_rules("web").latency_ms) == (3, 7)
        assert "&lt;b&gt;bad&lt;/b&gt;" in client.get("/queues/web/dead")
        assert "1 dead letter of queue web requeued" in client.do(
            "requeue-letters", about, count="1"
        )
        assert "No dead letter like that" in client.get("/queues/web/dead")
        for name in ("web", "web.dead"):
            assert "is removed" in client.do("remove-queue", {"queue": name}, typed=name)
        assert not ours.queue_exists("web")


def test_it_is_a_program_that_ends_when_it_is_told_to(roq_cluster: RunningCluster) -> None:
    with started("console", "--port", "0", cluster=roq_cluster.address) as process:
        client = Client(read_ready(process)["url"])
        assert "Overview" in client.get("/")
        assert next(client.fragments("/"))  # an open stream holds nobody up
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 0


def fill(publisher: roq.Publisher, stop: threading.Event) -> None:
    while not stop.is_set():
        for _ in range(20):
            publisher.publish(b"x" * 1000, topic="eu")
        stop.wait(0.02)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if PROGRAM is None:
        pytest.skip("needs Chromium: `make test-all` installs it")
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found
        assert found.errors == []


@dataclass(frozen=True)
class Act:
    """An action, done once by its form.

    Attributes:
        about: the address of the form behind its name.
        fields: what is filled in.
        told: in the audit, if it is done.
        refused: … if it has to be refused.
    """

    about: str
    told: str
    fields: Mapping[str, str] = field(default_factory=dict)
    refused: bool = False


NOBODY: Final = "Nobody" * 20
"""A type that no program runs, with a name that is too long for a phone."""
ACTS: Final = {
    "create-queue": Act("", "queue made is running", {"name": "made", "durability": "none"}),
    "add-exchange": Act("?queue=made", "exchange x2 of queue made is running"),
    "remove-exchange": Act("?queue=made&exchange=x2", "exchange x2 of queue made is removed"),
    "forget-exchange": Act("?queue=made&exchange=x1", "x1", {"typed": "x1"}, refused=True),
    "set-rules": Act("?queue=made", "queue made has new scaling rules", {"exchanges_max": "3"}),
    "stop-queue": Act("?queue=made", "queue made is stopped"),
    "start-queue": Act("?queue=made", "queue made is running"),
    "remove-queue": Act("?queue=made", "queue made is removed", {"typed": "made"}),
    "requeue-letters": Act("?queue=bills", "1 dead letter of queue bills requeued", {"count": "1"}),
    "purge-letters": Act(
        "?queue=bills", "1 dead letter of queue bills dropped", {"typed": "bills"}
    ),
    "pause-group": Act("?queue=bills&group=billing", "group billing of queue bills is paused"),
    "resume-group": Act("?queue=bills&group=billing", "group billing of queue bills goes on"),
    "seek-group": Act(
        "?queue=bills&group=billing", "group billing goes on from earliest", {"to": "earliest"}
    ),
    "delete-group": Act(
        "?queue=bills&group=billing", "billing of queue bills is deleted", {"typed": "billing"}
    ),
    "cordon-host": Act("?host={host}", "is cordoned"),
    "drain-host": Act("?host={host}", "is being drained"),
    "uncordon-host": Act("?host={host}", "takes what is placed"),
    "remove-host": Act("?host={host}", "manager", {"typed": "{host}"}, refused=True),
    "pause-schedule": Act("?name=nightly", "schedule nightly is paused"),
    "resume-schedule": Act("?name=nightly", "schedule nightly goes on"),
    "fire-schedule": Act("?name=nightly", "is submitted"),
    "set-limits": Act("?name=Resize", "type Resize has new limits", {"retries": "5"}),
    "test-jobs": Act("", "test jobs are submitted", {"seconds": "0"}),
    "interrupt-jobs": Act("?type=Long", "1 of 1 jobs: interrupt is done"),
    "restart-jobs": Act("?type=Bad", "1 of 1 jobs: restart is done"),
    "dispatch-jobs": Act("", "jobs are dispatched by database", {"mechanism": "database"}),
    "switch-jobs": Act("", "all jobs: off", {"to": "off"}),
    "requeue-jobs": Act(f"?type={NOBODY}", "1 of 1 jobs: requeue is done"),
    "delete-jobs": Act(f"?type={NOBODY}", "1 of 1 jobs: delete is done"),
}
"""All of them, one after the other."""

CLEAR: Final = """(() => {
  const light = (colour) => {
    const [r, g, b] = colour.map((each) => each / 255)
      .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = rgb(getComputedStyle(node).backgroundColor);
      if (found.length < 4 || found[3] > 0.9) return found;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *")].filter((node) => {
    const box = node.getBoundingClientRect();
    const words = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!words || !box.width || node.closest("svg, option")) return false;
    const [one, two] = [rgb(getComputedStyle(node).color), behind(node)].map(light);
    return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05) < 4.5;
  }).map((node) => `${node.tagName}.${node.className} ${node.textContent.trim().slice(0, 40)}`);
})()"""
"""Texts that are hard to read on what is behind them: less than WCAG's 4.5 : 1."""
BY_KEY: Final = """(() => {
  const places = "a, button, input:not([type=hidden]), select, summary, .scroll";
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  const found = [...document.querySelectorAll(places)].filter((node) => {
    node.focus({preventScroll: true});
    const name = node.textContent.trim() || node.getAttribute("aria-label") || node.labels?.length;
    return node.tabIndex < 0 || document.activeElement !== node || !name;
  }).map((node) => node.outerHTML.slice(0, 100));
  document.activeElement.blur();
  return found;
})()"""
"""What no key leads to, or has no name."""


def test_each_page_fits_and_each_action_is_done_and_a_move_is_seen(
    shown: Browser, tmp_path: Path
) -> None:
    stop, file = threading.Event(), str(tmp_path / "jobs.db")
    links = (MetricLink.of("Board=https://board.example/?q={queue}"),)
    with (
        cluster(hosts=2) as running,
        running.connect() as ours,
        worked(file) as job,
        console(running.address, links=links, jobs=file) as base,
    ):
        for name in ("orders", "bills"):
            ours.create_queue(name, durability="none")
        ours.add_exchange("orders")
        quiet = ScalingRules(name="q", exchange_bytes_per_minute=10**10, exchanges_max=2)
        ours.set_rules("orders", quiet)
        with ours.consumer("bills", "billing", topic="bill") as consumer:
            with ours.publisher("bills") as publisher:
                publisher.publish_many([b"one", b"two"], topic="bill")
            for _ in range(2):
                bill = consumer.receive(DEADLINE_SECONDS)
                assert bill is not None
                bill.reject("it is for somebody else " * 9)
            consumer.flush(DEADLINE_SECONDS)
            echo = roq.endpoint("answers.echo", request=bytes, response=bytes)
            service = ours.service("answers", queue="bills")
            service.handler(echo)(lambda body, _: body)
            with service:
                publishers = [ours.publisher("orders", name=f"shop-{n}") for n in range(3)]
                threads = [threading.Thread(target=fill, args=(each, stop)) for each in publishers]
                for thread in threads:
                    thread.start()
                try:
                    shown.new_page(1280)
                    shown.visit(f"{base}/queues/bills/dead")
                    letter = shown.js("document.querySelector('td a').textContent")
                    names = {
                        "queue": "orders", "group": "billing", "service": "answers",
                        "letter": letter, "job": job,
                    }  # fmt: skip
                    _pages_fit(shown, base, names)
                    _a_move_is_seen(shown, base, ours)
                finally:
                    stop.set()
                    for thread in threads:
                        thread.join()
            _each_action_is_done(shown, base, running.hosts[1])
        shown.new_page(1280)  # one that is left open would miss its console


@contextmanager
def worked(file: str) -> Iterator[int]:
    """Jobs of all kinds and an instance that runs them; gives one that has failed."""
    with roq.Jobs(file) as jobs:

        @jobs.type("Resize", restartable=True, cluster_limit=5)
        def resize(_job: roq.Job, _params: list[str]) -> None: ...

        @jobs.type("Bad")
        def bad(_job: roq.Job) -> None:
            raise ValueError("no such image in the archive of this year: " + "pictures/" * 40)

        @jobs.type("Long")
        def long(job: roq.Job) -> None:
            while True:
                job.check()
                threading.Event().wait(0.02)

        jobs.schedule("nightly", resize, [], cron="0 3 * * *", zone="Europe/Warsaw")
        failed = bad.submit()
        jobs.start(threads=3)
        night = jobs.batch("night of Friday")
        for part in "ab":
            night.add(resize, [part])
        done = night.then(resize, ["<script>"])
        long.submit()
        other = roq.Jobs(file)
        other.type(NOBODY)(resize.handler).submit(["of a program that is not there"])
        other.close()
        assert (failed.wait(DEADLINE_SECONDS), done.wait(DEADLINE_SECONDS)) == (
            JobStatus.FAILED, JobStatus.COMPLETE,
        )  # fmt: skip
        yield failed.id


def _pages_fit(shown: Browser, base: str, names: Mapping[str, object]) -> None:
    """Each page, wide and narrow, light and dark: nothing sticks out, all is read and reached."""
    paths = [
        each.format(**{**names, "queue": "orders" if each == "/queues/{queue}" else "bills"})
        for each in [*PAGES, *JOB_PAGES]
    ]
    for width in (1280, 390):
        shown.new_page(width, touch=width < 500)
        for path in [*paths, "/do/set-rules?queue=orders"]:
            shown.visit(f"{base}{path}")
            shown.until("!document.body.dataset.live || pulse.textContent == 'live'")
            assert shown.js("document.documentElement.scrollWidth") <= width, path
            here = "document.querySelector('nav [aria-current]')?.getBoundingClientRect().right"
            assert (shown.js(here) or 0) <= width, path
            assert shown.js(BY_KEY) == [], path
            for scheme in ("light", "dark"):
                chosen = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
                features = [{"name": each, "value": value} for each, value in chosen.items()]
                shown.call("Emulation.setEmulatedMedia", features=features)
                assert shown.js(CLEAR) == [], f"{path}, {scheme}"


def _a_move_is_seen(shown: Browser, base: str, ours: roq.Cluster) -> None:
    shown.new_page(1280)
    shown.visit(f"{base}/queues/orders")
    shown.until("document.getElementById('pulse').textContent == 'live'")
    shown.js("window.same = true")
    tight = ScalingRules(name="t", exchange_bytes_per_minute=10**8, exchanges_max=2)
    ours.set_rules("orders", tight)
    ours.remove_exchange("orders", "x1")
    shown.until("live_events.textContent.includes('x1 → x2')")
    shown.until("!live_exchanges.textContent.includes('x1')")
    assert shown.js("window.same"), "the page was not loaded anew"


def _each_action_is_done(shown: Browser, base: str, host: str) -> None:
    """By its form, with the keyboard."""
    assert ACTS.keys() == ACTIONS.keys() | JOB_ACTIONS.keys(), "an action that nobody has tried"
    for name, act in ACTS.items():
        shown.visit(f"{base}/do/{name}{act.about.format(host=host)}")
        shown.js("document.getElementById('main').focus()")
        for field_name, text in act.fields.items():
            place = f"document.querySelector('form.confirm [name={field_name}]')"
            wanted = text.format(host=host)
            shown.js(f"{place}.value = {json.dumps(wanted)}, {place}.focus()")
        shown.enter((ACTIONS | JOB_ACTIONS)[name].verb)
        shown.until("location.search.startsWith('?deed=') && document.readyState == 'complete'")
        shown.visit(f"{base}/audit")
        shown.until("document.querySelector('tbody .state').textContent != 'running'")
        told = shown.js("document.querySelector('tbody tr').textContent")
        assert act.told in told, name
        state = shown.js("document.querySelector('tbody .state').textContent")
        assert state == ("failed" if act.refused else "done"), told


def test_a_cluster_that_goes_is_told_and_found_again(shown: Browser, tmp_path: Path) -> None:
    with cluster(data_dir=tmp_path) as running:
        port = int(running.address.rpartition(":")[2])
        with console(running.address) as base:
            shown.new_page(1280)
            shown.visit(f"{base}/")
            shown.until("live_numbers.textContent.includes('all ready')")
            running.stop()
            shown.until("live_status.textContent.includes('is away')")
            with cluster(data_dir=tmp_path, port_base=port):
                shown.until("!live_status.textContent.includes('is away')")
                shown.until("live_numbers.textContent.includes('all ready')")
            shown.new_page(1280)


def test_ten_thousand_failed_jobs_are_restarted_by_a_filter(shown: Browser, tmp_path: Path) -> None:
    """On a phone in the dark, by keyboard, without a cluster."""
    lab = Lab(str(tmp_path / "jobs.db"), durable=False)
    lab.submit_all([new("A", restartable=False)] * 10_000 + [new("B")])
    owner = lab.instance()
    runs = lab.claim(owner, 10_000)
    with lab.store.write() as connection:
        failed = [Ended(run, RunEnd.RAISED, 0, trouble=TROUBLE) for run in runs]
        lab.store.finish(connection, owner, failed, "test")
    with console("127.0.0.1:9", jobs=str(tmp_path / "jobs.db")) as base:
        shown.new_page(390, touch=True)
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        shown.call("Emulation.setEmulatedMedia", features=dark)
        shown.visit(f"{base}/jobs/list?type=A&status=FAILED")
        paper = "getComputedStyle(document.body).backgroundColor"
        assert shown.js(f"+{paper}.match(/\\d+/)[0]") < 64, "it is dark"
        shown.until("document.getElementById('pulse')?.textContent == 'live'")
        shown.enter("Restart these …")
        shown.until("document.querySelector('form.confirm')")
        assert shown.js("document.body.textContent.includes('10,000 jobs as of now')")
        shown.enter("Restart")
        shown.until("document.body?.textContent.includes('10,000 of 10,000 jobs: restart is done')")
        shown.new_page(1280)
    waiting = [each for each in lab.jobs.operate.counts() if each.status is JobStatus.CREATED]
    lab.close()
    assert {each.type: each.number for each in waiting} == {"A": 10_000, "B": 1}
