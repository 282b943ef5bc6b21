"""Serves the console until a signal ends it."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn

from roq.console.app import WebConsole
from roq.console.live import Live
from roq.console.settings import ConsoleSettings
from roq.errors import ConfigError

STOP_SECONDS: Final = 3
CONNECTIONS_MAX: Final = 512
KEEP_ALIVE_SECONDS: Final = 15
HEAD_BYTES_MAX: Final = 16 * 1024
BACKLOG: Final = 128
log = logging.getLogger(__name__)
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class ConsoleServer(uvicorn.Server):
    """A server that says when it serves, and ends without an error when it is told to.

    Args:
        settings: of the console.
        on_ready: gets the URL, once it serves.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(self, settings: ConsoleSettings, on_ready: Callable[[str], None]) -> None:
        self._listener = _listen(settings.bind, settings.port)
        self._live: Live
        self._on_ready = on_ready
        host = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
        self.url = f"http://{host}:{self._listener.getsockname()[1]}/"
        console = WebConsole(settings)
        self._live = console.live
        super().__init__(
            uvicorn.Config(
                console.asgi,
                log_config=None,
                # Its lines about its own start have escape sequences in their fields.
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                lifespan="on",
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            )
        )

    def serve_until_told(self) -> None:
        """Serve; returns after SIGINT, SIGTERM or `stop`."""
        try:
            self.run(sockets=[self._listener])
        finally:
            self._listener.close()

    def stop(self) -> None:
        """End; from any thread."""
        self._live.ending = True
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, and say so."""
        await super().startup(sockets)
        if self.started:
            log.info("serving %s", self.url, extra={"event": "console_serving"})
            self._on_ready(self.url)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Streams to browsers end by themselves; else it would be waited for them."""
        self._live.ending = True
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """To be told to end is no error: unlike the inherited one this does not raise it again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _listen(bind: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    try:
        return socket.create_server(
            (bind.strip("[]"), port), family=family, backlog=BACKLOG, reuse_port=False
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"the console cannot listen on {bind} port {port}: {reason}") from None
