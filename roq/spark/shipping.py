"""What travels to executors says what is missing where RoQ is not installed.

Spark sends a reader or writer by the name of its class, so an executor without RoQ would fail with
a bare `No module named 'roq'`. Ours is preceded by a look whether the package is there, and that
travels as code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class Shipped:
    """A base of what is sent to executors."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        # Unpacked from left to right: the look comes before anything of RoQ.
        return _made, (_LOOK, type(self), self.__getstate__())


class _Look:
    """Becomes a call of `_look` where it is unpacked."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _look, ()


_LOOK: Final = _Look()


def _look() -> None:
    """Import the package.

    Raises:
        ImportError: it is not there, or something that it needs; says where, and what to do.
    """
    # This runs where there may be no RoQ: it knows nothing but the standard library.
    import socket  # noqa: PLC0415
    import sys  # noqa: PLC0415

    try:
        import roq.spark  # noqa: F401, PLC0415
    except ImportError as error:
        raise ImportError(
            f"the format roq needs the package roq on every executor: {error} (host "
            f"{socket.gethostname()}, {sys.executable}). Run pip install "
            "'roq-cluster[spark]' there, or send an environment along as docs/spark.md says"
        ) from None


def _made(_: None, kind: type, state: dict[str, object]) -> object:
    made: object = object.__new__(kind)
    made.__dict__.update(state)
    return made


# Spark's pickler sends the code of what belongs to no module, and else no more than its name.
_look.__module__ = _made.__module__ = "__main__"
