"""A TCP relay between two processes, to cut and mend the connection between them."""

import selectors
import socket
import threading

_CHUNK_BYTES = 65_536


class TcpRelay:
    """Listens on a free port of loopback and passes on to `target`.

    While cut, it closes what is connected and every new connection at once.

    Args:
        target: address and port.
        bytes_per_second: how much it passes on; None: whatever comes.
    """

    def __init__(self, target: tuple[str, int], bytes_per_second: float | None = None) -> None:
        self._target = target
        self._rate = bytes_per_second
        self._pause = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._lock = threading.Lock()
        self._is_cut = False
        self._cut_done = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Nothing passes any more when this returns."""
        self._cut_done.clear()
        with self._lock:
            self._is_cut = True
        self._wake.send(b"\0")
        assert self._cut_done.wait(30)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self._closing = True
        self._wake.send(b"\0")
        self._thread.join()
        # Only now: the thread may see the end for another reason than this byte.
        self._wake.close()
        self._woken.close()

    def _run(self) -> None:
        pairs: dict[socket.socket, socket.socket] = {}
        while not self._closing:
            for key, _ in self._selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._listener:
                    self._accept(pairs)
                elif source is self._woken:
                    source.recv(_CHUNK_BYTES)
                elif source in pairs:
                    self._pass_on(source, pairs)
            if self._is_cut:
                for source in list(pairs):
                    self._drop(source, pairs)
                self._cut_done.set()
        for source in [*pairs, self._listener]:
            source.close()
        self._selector.close()

    def _accept(self, pairs: dict[socket.socket, socket.socket]) -> None:
        near, _ = self._listener.accept()
        if self._is_cut:
            near.close()
            return
        try:
            far = socket.create_connection(self._target, timeout=5)
        except OSError:
            near.close()
            return
        pairs[near], pairs[far] = far, near
        for end in (near, far):
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket, pairs: dict[socket.socket, socket.socket]) -> None:
        try:
            data = source.recv(_CHUNK_BYTES)
            if data:
                pairs[source].sendall(data)
                if self._rate is not None:
                    self._pause.wait(len(data) / self._rate)
        except OSError:
            data = b""
        if not data:
            self._drop(source, pairs)

    def _drop(self, source: socket.socket, pairs: dict[socket.socket, socket.socket]) -> None:
        if source not in pairs:
            return
        for end in (source, pairs[source]):
            del pairs[end]
            self._selector.unregister(end)
            end.close()
