"""Who may do what: host names, tokens, sessions, forms, and what browsers are told to refuse.

A session is a signed cookie, so the console remembers only those that were ended before their
time. Its secret is new in each process: after a restart everybody logs in again. Each form carries
a word that is made of the session, so another site cannot post it.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roq.console.settings import ConsoleSettings, is_loopback
from roq.errors import InvalidRequest

SESSION_SECONDS: Final = 12 * 60 * 60
BODY_BYTES_MAX: Final = 64 * 1024
ENDED_MAX: Final = 10_000
"""So many ended sessions are remembered; if there are more, all sessions end."""
OPEN_PATH: Final = "/login"
DIGITS_MAX: Final = 18
"""Of a number in a form or an address; more does not fit 64 bits."""
OPEN_FOLDER: Final = "/static/"
"""What who has not logged in may see, beside that path."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

log = logging.getLogger(__name__)


class Role(StrEnum):
    """What somebody may do."""

    NOBODY = "nobody"
    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class WebSession:
    """Somebody's browser.

    Attributes:
        role: what they may do.
        issued: seconds since 1970.
        id: random.
        form: the word that their forms carry.
    """

    role: Role
    issued: int
    id: str
    form: str

    @property
    def operates(self) -> bool:
        """Whether they may change things."""
        return self.role is Role.OPERATOR


class Sessions:
    """Makes sessions and knows its own again.

    Args:
        settings: which tokens there are.
        now: seconds since 1970.
    """

    def __init__(self, settings: ConsoleSettings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self._secret = os.urandom(32)
        self._ended: dict[str, int] = {}  # id → when it was issued

    def begin(self, role: Role) -> WebSession:
        """A new one; nobody has more than the settings allow."""
        if self._settings.read_only and role is Role.OPERATOR:
            role = Role.READER
        return self._session(role, int(self._now()), os.urandom(16).hex())

    def stranger(self) -> WebSession:
        """Of a browser that brings none."""
        return self.begin(Role.NOBODY if self._settings.guarded else Role.OPERATOR)

    def of_token(self, token: str) -> WebSession | None:
        """Of who knows a token; None: there is no such token. Takes as long whatever is wrong."""
        given = _digest(token)
        operator = hmac.compare_digest(given, _digest(self._settings.token))
        reader = hmac.compare_digest(given, _digest(self._settings.reader_token))
        if operator and self._settings.token:
            return self.begin(Role.OPERATOR)
        return self.begin(Role.READER) if reader and self._settings.reader_token else None

    def cookie(self, session: WebSession) -> str:
        """What the browser keeps."""
        text = f"{session.role}.{session.issued}.{session.id}"
        return f"{text}.{self._sign('session', text)}"

    def of_cookie(self, cookie: str) -> WebSession | None:
        """The session of a cookie; None: it is not ours, changed, or too old."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("session", text).encode()):
            return None
        role, issued, identity = text.split(".")
        session = self._session(Role(role), int(issued), identity)
        return session if self.lives(session) else None

    def lives(self, session: WebSession) -> bool:
        """Whether it was not ended, and is not too old."""
        return session.id not in self._ended and not self._is_old(session.issued)

    def end(self, session: WebSession) -> None:
        """Know it no more, whoever still has its cookie."""
        if session.role is Role.NOBODY:
            return  # it may nothing, and strangers make as many as they like
        if len(self._ended) >= ENDED_MAX:
            for identity in [each for each, at in self._ended.items() if self._is_old(at)]:
                del self._ended[identity]
        if len(self._ended) >= ENDED_MAX:
            self._secret = os.urandom(32)  # no cookie is known any more, so none is remembered
            self._ended.clear()
        self._ended[session.id] = session.issued

    def _is_old(self, issued: int) -> bool:
        return self._now() - issued > SESSION_SECONDS

    def _session(self, role: Role, issued: int, identity: str) -> WebSession:
        return WebSession(role, issued, identity, self._sign("form", identity))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}:{text}".encode(), sha256).hexdigest()


class Guard:
    """Stands before everything: what it lets through has a session in `scope["roq.session"]`.

    Args:
        app: what it guards.
        settings: for whom the console is.
        sessions: makes sessions.
    """

    def __init__(self, app: ASGIApp, *, settings: ConsoleSettings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions
        # Browsers send cookies to every port of a host: consoles must not take each other's.
        self._cookie = f"roq_console_{settings.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        known = self._sessions.of_cookie(request.cookies.get(self._cookie, ""))
        session = known or self._sessions.stranger()
        scope["roq.session"] = session
        refused = self._refusal(request, session)

        began = False

        async def answer(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(raw=message["headers"])
                message["headers"] = headers.raw
                headers.update(HEADERS)
                fixed = self._path(scope).startswith(OPEN_FOLDER)
                headers.setdefault("cache-control", "no-cache" if fixed else "no-store")
                now = scope["roq.session"]
                if now is not known and refused is None:
                    headers.append("set-cookie", self._set_cookie(request, now))
            await send(message)

        try:
            await (refused or _Bounded(self._app))(scope, receive, answer)
        except Exception:
            if began:
                raise  # nothing can be said any more: the connection is cut
            # Whoever answers for a fault outside of here would do it without these headers.
            log.exception("a fault of the console at %s", scope["path"])
            fault = PlainTextResponse("A fault of the console: its log tells more.\n", 500)
            await fault(scope, receive, answer)

    @staticmethod
    def _path(scope: Scope) -> str:
        path: str = scope["path"]
        return path.removeprefix(scope.get("root_path", ""))

    def _refusal(self, request: Request, session: WebSession) -> Response | None:
        if not self._settings.guarded and not self._is_local(request):
            return PlainTextResponse(
                "This console has no token, so it answers on its own machine alone, "
                "under the name localhost or 127.0.0.1.\n", 403,
            )  # fmt: skip
        if self._settings.guarded and self._settings.names and not self._is_named(request):
            return PlainTextResponse("This console has another name.\n", 403)
        path = self._path(request.scope)
        is_open = path == OPEN_PATH or path.startswith(OPEN_FOLDER)
        if session.role is Role.NOBODY and not is_open:
            if request.method in {"GET", "HEAD"} and path != "/live":
                return RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)
            return PlainTextResponse("Log in first.\n", 401)
        return None

    def _is_local(self, request: Request) -> bool:
        """Neither from elsewhere, nor by a page whose name was bound to this machine."""
        client = request.client
        near = client is None or is_loopback(client.host)
        return near and (is_loopback(_host(request)) or self._is_named(request))

    def _is_named(self, request: Request) -> bool:
        return _host(request) in self._settings.names

    def _set_cookie(self, request: Request, session: WebSession) -> str:
        secure = "; Secure" if request.scope["scheme"] == "https" else ""
        path = request.scope.get("root_path", "") or "/"
        return (
            f"{self._cookie}={self._sessions.cookie(session)}; Path={path}; HttpOnly; "
            f"SameSite=Strict; Max-Age={SESSION_SECONDS}{secure}"
        )


class _Bounded:
    """Refuses bodies that no form of ours has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = Request(scope).headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            await PlainTextResponse("No form here is so long.\n", 413)(scope, receive, send)
            return
        left = BODY_BYTES_MAX

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            if message["type"] == "http.request":
                left -= len(message.get("body", b""))
                if left < 0:
                    return {"type": "http.disconnect"}
            return message

        await self._app(scope, bounded, send)


def whole(given: Mapping[str, str], name: str) -> int:
    """A field that is a whole number.

    Raises:
        InvalidRequest: it is none.
    """
    text = given.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise InvalidRequest(f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


def form_is_ours(session: WebSession, word: str) -> bool:
    """Whether a form was made for this session."""
    return hmac.compare_digest(word.encode(), session.form.encode())


def _host(request: Request) -> str:
    """The name under which the browser asks, without the port."""
    host = request.headers.get("host", "")
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()
