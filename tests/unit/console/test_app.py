"""Coming, going, and what is mounted where."""

from __future__ import annotations

from paper_console import PaperBrowser, PaperConsole
from starlette.applications import Starlette
from starlette.routing import Mount

from roq.console import app as module

TOKEN, READER = "operator-0123456789", "reader-0123456789"


def test_a_token_lets_in_and_logging_out_lets_nobody_in() -> None:
    with PaperConsole(token=TOKEN, reader_token=READER) as console:
        wrong = console.post("/login", {"token": "x", "form": console.form("/login")})
        assert wrong.status == 403
        assert "not a token" in wrong.text
        assert console.post("/login", {"token": TOKEN, "form": "x"}).status == 403
        assert (
            console.post("/login", {"token": TOKEN, "form": console.form("/login")}).status == 303
        )
        page = console.get("/")
        assert page.status == 200
        assert "/do/create-queue" in page.text
        assert console.post("/logout", {"form": "x"}).status == 303
        assert console.get("/").status == 200, "nobody else can log you out"
        console.post("/logout", {"form": console.form("/")})
        assert console.get("/").header("location") == "/login"


def test_who_reads_sees_no_action() -> None:
    with PaperConsole(token=TOKEN, reader_token=READER) as console:
        console.post("/login", {"token": READER, "form": console.form("/login")})
        assert "/do/" not in console.get("/").text
        assert console.get("/do/create-queue").status == 403


def test_too_much_at_once_waits() -> None:
    with PaperConsole() as console:
        page = "/do/start-queue?queue=load"
        form = {"form": console.form(page), "stamp": console.field(page, "stamp"), "queue": "load"}
        console.console._deeds = module.DEEDS_AT_ONCE_MAX
        assert console.post("/do/start-queue", form).status == 503


def test_it_can_be_mounted() -> None:
    with PaperConsole() as console:
        browser = PaperBrowser(Starlette(routes=[Mount("/roq", console.app)]))
        page = browser.get("/roq/queues/load")
        assert page.status == 200
        assert 'href="/roq/static/console.css"' in page.text
        assert "/roq/live?page=%2Fqueues%2Fload" in page.text
        assert "Path=/roq" in page.header("set-cookie")
        assert browser.get("/roq/static/console.js").status == 200
