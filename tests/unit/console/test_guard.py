"""Who gets in, as what, and what browsers are told to refuse."""

from __future__ import annotations

import pytest
from paper_console import PaperBrowser, PaperConsole

from roq.console import guard
from roq.console.guard import BODY_BYTES_MAX, SESSION_SECONDS, Role, Sessions, form_is_ours
from roq.console.settings import ConsoleSettings

TOKEN, READER = "operator-0123456789", "reader-0123456789"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def sessions(**settings: object) -> Sessions:
    return Sessions(ConsoleSettings(cluster="a:1", **settings), Clock())  # type: ignore[arg-type]


def test_a_cookie_is_known_again_and_no_other_one() -> None:
    ours = sessions()
    session = ours.begin(Role.READER)
    cookie = ours.cookie(session)
    assert ours.of_cookie(cookie) == session
    for forged in ("", "a.b", cookie.replace("reader", "operator"), f"{cookie}0", cookie[:-1]):
        assert ours.of_cookie(forged) is None
    assert sessions().of_cookie(cookie) is None, "of a console that was started anew"


def test_a_session_ends() -> None:
    clock = Clock()
    ours = Sessions(ConsoleSettings(cluster="a:1"), clock)
    cookie = ours.cookie(ours.begin(Role.OPERATOR))
    clock.now += SESSION_SECONDS
    assert ours.of_cookie(cookie) is not None
    clock.now += 1
    assert ours.of_cookie(cookie) is None


def test_an_ended_session_is_known_no_more_and_no_other_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    ours = Sessions(ConsoleSettings(cluster="a:1"), clock)
    monkeypatch.setattr(guard, "ENDED_MAX", 2)
    first, second, other = (ours.begin(Role.OPERATOR) for _ in range(3))
    nobody = ours.begin(Role.NOBODY)
    ours.end(nobody)
    assert ours.lives(nobody), "strangers fill no memory"
    ours.end(first)
    ours.end(second)
    assert not ours.lives(first)
    assert ours.of_cookie(ours.cookie(first)) is None
    assert ours.of_cookie(ours.cookie(other)) == other
    cookies = [ours.cookie(each) for each in (first, second, other)]
    ours.end(ours.begin(Role.READER))
    assert [ours.of_cookie(each) for each in cookies] == [None] * 3, "too many: all end"
    clock.now += SESSION_SECONDS + 1
    late = ours.begin(Role.OPERATOR)
    ours.end(ours.begin(Role.OPERATOR))
    ours.end(ours.begin(Role.OPERATOR))
    assert ours.of_cookie(ours.cookie(late)) == late, "those that are too old are forgotten first"


def test_a_cookie_that_was_logged_out_opens_nothing() -> None:
    with PaperConsole(token=TOKEN) as console:
        console.post("/login", {"token": TOKEN, "form": console.form("/login")})
        stolen = dict(console.cookies)
        console.post("/logout", {"form": console.form("/")})
        console.cookies = stolen
        assert console.get("/").header("location") == "/login"
        assert console.get("/live?page=/").status == 401


@pytest.mark.parametrize("path", ["/loginx", "/login/x", "/static", "/staticx"])
def test_a_path_that_begins_as_an_open_one_is_not_open(path: str) -> None:
    with PaperConsole(token=TOKEN) as console:
        assert console.get(path).header("location") == "/login"


def test_a_fault_tells_browsers_what_to_refuse_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with PaperConsole() as console:

        def fail(*_: object, **__: object) -> str:
            raise ZeroDivisionError

        monkeypatch.setattr(console.console._renderer, "page", fail)
        answer = console.get("/")
        assert (answer.status, "its log tells more" in answer.text) == (500, True)
        assert "default-src 'none'" in answer.header("content-security-policy")
        assert answer.header("cache-control") == "no-store"


def test_a_host_that_cannot_be_is_answered_with_all_headers() -> None:
    with PaperConsole(token=TOKEN) as console:
        console.host = "["
        assert console.get("/login").header("x-frame-options") == "DENY"


def test_a_token_says_what_somebody_may_do() -> None:
    ours = sessions(token=TOKEN, reader_token=READER)
    assert [getattr(ours.of_token(each), "role", None) for each in (TOKEN, READER, "", "x")] == [
        Role.OPERATOR, Role.READER, None, None,
    ]  # fmt: skip
    only = sessions(token=TOKEN)
    assert only.of_token("") is None, "a token that is not set is nobody's"
    harmless = sessions(token=TOKEN, read_only=True).of_token(TOKEN)
    assert harmless is not None
    assert harmless.role is Role.READER


def test_a_form_is_that_of_its_session() -> None:
    ours = sessions()
    one, other = ours.begin(Role.OPERATOR), ours.begin(Role.OPERATOR)
    assert form_is_ours(one, one.form)
    assert not form_is_ours(one, other.form)
    assert not form_is_ours(one, "")
    assert not form_is_ours(one, "ä")


def test_every_answer_tells_browsers_what_to_refuse() -> None:
    with PaperConsole() as console:
        for path in ("/", "/nothing", "/static/console.css", "/do/create-queue"):
            answer = console.get(path)
            policy = answer.header("content-security-policy")
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.header("x-content-type-options") == "nosniff"
            assert answer.header("x-frame-options") == "DENY"
        assert console.get("/").header("cache-control") == "no-store"


def test_a_cookie_is_for_this_console_alone() -> None:
    with PaperConsole() as console:
        cookie = console.get("/").header("set-cookie")
        assert cookie.startswith("roq_console_7080=")
        for part in ("HttpOnly", "SameSite=Strict", "Path=/"):
            assert part in cookie
        assert console.get("/").header("set-cookie") == "", "it is given once"


@pytest.mark.parametrize(
    ("client", "host", "status"),
    [("127.0.0.1", "127.0.0.1:7080", 200), ("127.0.0.1", "localhost", 200),
     ("::1", "[::1]:7080", 200), ("127.0.0.1", "evil.example:7080", 403),
     ("127.0.0.1", "127.0.0.1.evil.example", 403), ("127.0.0.1", "", 403),
     ("10.0.0.7", "127.0.0.1:7080", 403), ("127.0.0.1", "roq.example", 200)],
)  # fmt: skip
def test_without_a_token_only_this_machine_is_answered_under_its_own_name(
    client: str, host: str, status: int
) -> None:
    with PaperConsole(names=("roq.example",)) as console:
        browser = PaperBrowser(console.app, client=client, host=host)
        assert browser.get("/").status == status


def test_who_has_not_logged_in_sees_nothing() -> None:
    with PaperConsole(token=TOKEN) as console:
        assert console.get("/queues/load").header("location") == "/login"
        assert console.get("/live?page=/").status == 401
        assert console.post("/do/remove-queue", {"queue": "load"}).status == 401
        assert "load" not in console.get("/login").text
        assert console.get("/static/console.css").status == 200


def test_names_are_checked_with_a_token_if_there_are_any() -> None:
    with PaperConsole(token=TOKEN, names=("roq.example",)) as console:
        console.host = "evil.example"
        assert console.get("/login").status == 403
        console.host = "roq.example:7080"
        assert console.get("/login").status == 200


def test_a_body_that_no_form_has_is_refused() -> None:
    with PaperConsole() as console:
        long = {"a": "x" * BODY_BYTES_MAX}
        assert console.post("/login", long).status == 413
        assert console.post("/login", {}, length="many").status == 413
        assert console.post("/login", {}, length="²").status == 413
