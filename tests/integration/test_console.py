"""The web console and a real cluster: what it shows is so, and what is wanted there is done."""

from __future__ import annotations

import http.client
import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from browser import PROGRAM, Browser, browser
from commands import DEADLINE_SECONDS, read_ready, started, until
from job_lab import TROUBLE, Lab, new

import roq
from roq.client.admin.views import ScalingRules
from roq.console.job_pages import JOB_PAGES
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


def test_pages_fit_and_moves_are_seen_as_they_happen(shown: Browser) -> None:
    stop = threading.Event()
    links = (MetricLink.of("Board=https://board.example/?q={queue}"),)
    with cluster(hosts=2) as running, running.connect() as ours:
        ours.create_queue("orders", durability="none")
        ours.create_queue("bills", durability="none")
        ours.add_exchange("orders")
        quiet = ScalingRules(name="q", exchange_bytes_per_minute=10**10, exchanges_max=2)
        ours.set_rules("orders", quiet)
        with ours.consumer("bills", "billing"), console(running.address, links=links) as base:
            publishers = [ours.publisher("orders", name=f"shop-{n}") for n in range(3)]
            threads = [threading.Thread(target=fill, args=(each, stop)) for each in publishers]
            for thread in threads:
                thread.start()
            try:
                _pages_fit(shown, base)
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
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            _queue_is_made(shown, base)
            assert ours.queue_exists("made-here")
            shown.new_page(1280)  # one that is left open would miss its console


def _pages_fit(shown: Browser, base: str) -> None:
    """Each page, wide and narrow: nothing sticks out, and it is live."""
    for width in (1280, 390):
        shown.new_page(width, touch=width < 500)
        for path in ("/", "/queues/orders", "/queues/bills/groups/billing", "/hosts", "/groups",
                     "/services", "/dead", "/health", "/audit"):  # fmt: skip
            shown.visit(f"{base}{path}")
            shown.until("document.getElementById('pulse').textContent == 'live'")
            assert shown.js("document.documentElement.scrollWidth") <= width, path
        for path in ("/do/set-rules?queue=orders", "/queues/orders/dead"):
            shown.visit(f"{base}{path}")
            assert shown.js("document.documentElement.scrollWidth") <= width, path


def _queue_is_made(shown: Browser, base: str) -> None:
    """By its form, with the keyboard."""
    shown.visit(f"{base}/do/create-queue")
    shown.key("Tab")
    assert shown.js("document.activeElement.className") == "skip"
    shown.js("document.getElementById('f-name').focus()")
    shown.call("Input.insertText", text="made-here")
    shown.js("document.querySelector('form.confirm button').click()")
    shown.until("document.body?.textContent.includes('queue made-here is running')")
    shown.until("window.live_queues?.textContent.includes('made-here')")


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
    lab.submit_all([new("A", restartable=False)] * 10_000 + [new("B" * 100)])
    owner = lab.instance()
    runs = lab.claim(owner, 10_000)
    with lab.store.write() as connection:
        failed = [Ended(run, RunEnd.RAISED, 0, trouble=TROUBLE) for run in runs]
        lab.store.finish(connection, owner, failed, "test")
    with console("127.0.0.1:9", jobs=str(tmp_path / "jobs.db")) as base:
        shown.new_page(390, touch=True)
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        shown.call("Emulation.setEmulatedMedia", features=dark)
        for path in (*JOB_PAGES, "/jobs/list?type=A&status=FAILED"):
            shown.visit(f"{base}{path.format(job=1)}")
            assert shown.js("document.documentElement.scrollWidth") <= 390, path
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
    assert {each.type: each.number for each in waiting} == {"A": 10_000, "B" * 100: 1}
