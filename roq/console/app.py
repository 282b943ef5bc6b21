"""The console as an ASGI application: to be run by `roq console`, or mounted in another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route, compile_path
from starlette.staticfiles import StaticFiles

from roq.console import pages
from roq.console.actions import ACTIONS, Action, Intent, stamp_of
from roq.console.audit import DONE, FAILED, Audit, Deed
from roq.console.dead_letters import Letters
from roq.console.guard import Guard, Role, Sessions, WebSession, form_is_ours
from roq.console.live import Live
from roq.console.pages import PAGES, Asked, Page, View
from roq.console.render import Renderer
from roq.console.settings import ConsoleSettings
from roq.console.source import Source
from roq.errors import InvalidRequest, RoQError

if TYPE_CHECKING:
    from roq.console.jobs import JobDesk

DEEDS_AT_ONCE_MAX: Final = 8
ANSWER_SECONDS: Final = 3.0
"""What takes longer goes on while the browser sees its page again."""
FORM_FIELDS_MAX: Final = 50
QUERY_MAX: Final = 2048

log = logging.getLogger(__name__)


class WebConsole:
    """The application and what it holds.

    Args:
        settings: which cluster, and for whom.
        source: the cluster, if it is not to be made of the settings.

    Attributes:
        asgi: the application.
        live: the streams to browsers; whoever stops the server says there that it ends.
    """

    def __init__(self, settings: ConsoleSettings, source: Source | None = None) -> None:
        self.settings = settings
        self.source = source or Source(settings.cluster)
        self.audit = Audit()
        self.letters = Letters(self.source)
        self.live = Live(time.monotonic)
        self._sessions = Sessions(settings, time.time)
        self._renderer = Renderer()
        self.jobs: JobDesk | None = None
        self._actions = dict(ACTIONS)
        paths = dict(PAGES)
        if settings.jobs:
            desk = import_module("roq.console.jobs").JobDesk
            pages_of_jobs = import_module("roq.console.job_pages")
            self.jobs = desk(settings.jobs, self.source.looks)
            paths |= pages_of_jobs.JOB_PAGES
            self._actions |= pages_of_jobs.JOB_ACTIONS
        self._pages = [(compile_path(path), page) for path, page in paths.items()]
        self._hands = ThreadPoolExecutor(DEEDS_AT_ONCE_MAX, "roq-console-deed")
        self._deeds = 0
        guard = Middleware(Guard, settings=settings, sessions=self._sessions)
        self.asgi = Starlette(
            routes=[
                Mount("/static", StaticFiles(packages=[("roq.console", "static")]), name="static"),
                Route("/live", self._stream),
                Route("/login", self._login, methods=["GET", "POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Route("/do/{action}", self._confirm, methods=["GET"]),
                Route("/do/{action}", self._act, methods=["POST"]),
                *(Route(path, partial(self._page, page)) for path, page in paths.items()),
                Route("/{path:path}", self._nowhere),
            ],
            middleware=[guard],
            lifespan=lambda _: self.lifespan(),
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """While it is entered, the cluster is followed. Whoever mounts the console enters it."""
        self.source.start()
        try:
            yield
        finally:
            self.live.ending = True
            await run_in_threadpool(self.close)

    def close(self) -> None:
        """End what is under way, and leave the cluster."""
        self._hands.shutdown(wait=True, cancel_futures=True)
        self.source.close()
        if self.jobs is not None:
            self.jobs.close()

    # --- pages ------------------------------------------------------------------------------------

    async def _page(self, page: Page, request: Request) -> Response:
        asked = self._asked(request, request.path_params)
        return await run_in_threadpool(self._answer, request, asked, page)

    async def _nowhere(self, request: Request) -> Response:
        view = View("failed.html", "There is no such page",
                    {"error": f"{request.url.path} is no page of this console",
                     "title": "There is no such page"}, live=False, status=404)  # fmt: skip
        return await run_in_threadpool(self._show, request, view, self._asked(request, {}))

    def _answer(self, request: Request, asked: Asked, page: Page) -> Response:
        return self._show(request, _made(page, asked), asked)

    def _show(self, request: Request, view: View, asked: Asked) -> Response:
        session: WebSession = request.scope["roq.session"]
        base = request.scope.get("root_path", "")
        path = request.url.path.removeprefix(base)
        query = f"?{request.url.query}" if request.url.query else ""
        html = self._renderer.page(
            view, asked,
            base=base, path=path, session=session,
            live_url=f"{base}/live?{urlencode({'page': path + query})}",
            deed=self.audit.find(request.query_params.get("deed", "")),
        )  # fmt: skip
        return HTMLResponse(html, view.status)

    def _asked(self, request: Request, parts: Mapping[str, Any]) -> Asked:
        session: WebSession = request.scope["roq.session"]
        return self._asked_as(session, parts, request.query_params)

    def _asked_as(
        self, session: WebSession, parts: Mapping[str, Any], query: Mapping[str, str]
    ) -> Asked:
        return Asked(
            self.source, self.settings, self.audit, self.letters, parts, query, session.operates,
            self.jobs,
        )  # fmt: skip

    # --- news -------------------------------------------------------------------------------------

    async def _stream(self, request: Request) -> Response:
        wanted = request.query_params.get("page", "")[:QUERY_MAX]
        try:
            parts = urlsplit(wanted)
            query = dict(parse_qsl(parts.query, max_num_fields=FORM_FIELDS_MAX))
        except ValueError:
            return PlainTextResponse("That is no path of a page.\n", 400)
        found = self._find(parts.path)
        if found is None or found[0] in pages.STILL:
            return PlainTextResponse("There is no such page.\n", 404)
        if self.live.full:
            return PlainTextResponse("Too many browsers look at once.\n", 503)
        page, path_parts = found
        session: WebSession = request.scope["roq.session"]
        asked = self._asked_as(session, path_parts, query)
        base = request.scope.get("root_path", "")

        def make() -> dict[str, str]:
            view = _made(page, asked)
            deed = self.audit.find(query.get("deed", ""))
            around: dict[str, object] = {"base": base, "path": parts.path, "deed": deed}
            return self._renderer.fragments(view, asked, **around)

        key = f"{session.role} {base} {wanted}"
        events = self.live.stream(key, make, lambda: self._sessions.lives(session))
        return StreamingResponse(events, media_type="text/event-stream")

    def _find(self, path: str) -> tuple[Page, Mapping[str, str]] | None:
        for (pattern, _, _), page in self._pages:
            match = pattern.match(path)
            if match:
                return page, match.groupdict()
        return None

    # --- actions ----------------------------------------------------------------------------------

    async def _confirm(self, request: Request) -> Response:
        return await run_in_threadpool(self._ask, request, dict(request.query_params), None)

    def _ask(self, request: Request, given: Mapping[str, str], why: RoQError | None) -> Response:
        """The page that says what an action will do, and why it was not done."""
        asked = self._asked(request, {})
        refused = self._refused(request)
        if refused is not None:
            return refused
        action, intent = self._intent(request, given)
        try:
            _check_places(action, intent)
            view = View(
                "confirm.html",
                action.named(action.title, intent),
                {
                    "action": action,
                    "name": request.path_params["action"],
                    "heading": action.named(action.title, intent),
                    "effect": action.effect(intent),
                    "fields": action.fields(intent),
                    "places": {place: intent[place] for place in action.places},
                    "typed": action.to_type(intent),
                    "given": given if why is not None else {},
                    "stamp": stamp_of(intent),
                    "back": action.named(action.back, intent),
                    "why": why,
                },
                live=False,
                status=200 if why is None else 409,
            )
        except RoQError as error:
            view = pages.failed(error)
        return self._show(request, view, asked)

    async def _act(self, request: Request) -> Response:
        form = _texts(await request.form(max_fields=FORM_FIELDS_MAX, max_files=0))
        return await self._do(request, form)

    async def _do(self, request: Request, form: dict[str, str]) -> Response:
        session: WebSession = request.scope["roq.session"]
        refused = self._refused(request)
        if refused is not None:
            return refused
        if not form_is_ours(session, form.pop("form", "")):
            return PlainTextResponse("This form was not made for you, or is too old: go back, "
                                     "load the page again, and repeat it.\n", 403)  # fmt: skip
        stamp = form.pop("stamp", "")
        action, intent = self._intent(request, form)
        try:
            _check_places(action, intent)
            await run_in_threadpool(action.check, intent, stamp)
        except RoQError as error:
            return await run_in_threadpool(self._ask, request, form, error)
        if self._deeds >= DEEDS_AT_ONCE_MAX:
            return PlainTextResponse("Too much is under way: wait for it.\n", 503)
        deed = self.audit.begin(intent.who, action.named(action.title, intent), form)
        self._deeds += 1
        working = asyncio.get_running_loop().run_in_executor(
            self._hands, self._work, action, intent, deed
        )
        working.add_done_callback(lambda _: self._done())
        await asyncio.wait([working], timeout=ANSWER_SECONDS)
        back = action.named(action.back, intent)
        base = request.scope.get("root_path", "")
        return RedirectResponse(f"{base}{back}?deed={deed.number}", 303)

    def _work(self, action: Action, intent: Intent, deed: Deed) -> None:
        try:
            result = action.run(intent)
        except RoQError as error:
            self.audit.end(deed, FAILED, str(error))
        except BaseException:
            self.audit.end(deed, FAILED, "a fault of the console: its log tells more")
            log.exception("%s failed", deed.what)
            raise
        else:
            self.audit.end(deed, DONE, result)
        self.source.looks.forget()

    def _done(self) -> None:
        self._deeds -= 1

    def _intent(self, request: Request, given: Mapping[str, str]) -> tuple[Action, Intent]:
        action = self._actions[request.path_params["action"]]
        return action, Intent(self.source, self.letters, given, self.jobs, _who(request))

    def _refused(self, request: Request) -> Response | None:
        session: WebSession = request.scope["roq.session"]
        if request.path_params["action"] not in self._actions:
            return PlainTextResponse("There is no such action.\n", 404)
        if not session.operates:
            return PlainTextResponse("You may look, and change nothing.\n", 403)
        return None

    # --- coming and going -------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        session: WebSession = request.scope["roq.session"]
        base = request.scope.get("root_path", "")
        view = View("login.html", "Log in", {"wrong": False}, live=False)
        if request.method == "POST":
            form = _texts(await request.form(max_fields=FORM_FIELDS_MAX, max_files=0))
            known = self._sessions.of_token(form.get("token", "").strip())
            if known is not None and form_is_ours(session, form.get("form", "")):
                request.scope["roq.session"] = known
                return RedirectResponse(f"{base}/", 303)
            client = request.client.host if request.client is not None else "?"
            log.warning("a wrong token from %s", client, extra={"event": "console_wrong_token"})
            view = View("login.html", "Log in", {"wrong": True}, live=False, status=403)
        return await run_in_threadpool(self._show, request, view, self._asked(request, {}))

    async def _logout(self, request: Request) -> Response:
        session: WebSession = request.scope["roq.session"]
        form = _texts(await request.form(max_fields=FORM_FIELDS_MAX, max_files=0))
        if form_is_ours(session, form.get("form", "")):
            self._sessions.end(session)
            request.scope["roq.session"] = self._sessions.begin(Role.NOBODY)
        return RedirectResponse(f"{request.scope.get('root_path', '')}/login", 303)


def _who(request: Request) -> str:
    session: WebSession = request.scope["roq.session"]
    client = request.client.host if request.client is not None else "this process"
    return f"{session.role} at {client}"


def _made(page: Page, asked: Asked) -> View:
    try:
        return page(asked)
    except RoQError as error:
        view = pages.failed(error)
        return replace(view, live=view.live and page not in pages.STILL)


def _check_places(action: Action, intent: Intent) -> None:
    for place in action.places:
        if not intent[place]:
            raise InvalidRequest(f"the {place} is not named")


def _texts(form: FormData) -> dict[str, str]:
    return {name: text for name, text in form.items() if isinstance(text, str)}
