"""What travels to executors says what is wrong where RoQ is not installed, or is another version.

Spark sends a reader or writer by the name of its class, so an executor without RoQ would fail with
a bare `No module named 'roq'`, and one with another RoQ with whatever does not fit. Ours is
preceded by a look which version is there, and that travels as code. (Spark itself compares the
versions of Python.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import roq


class Shipped:
    """A base of what is sent to executors."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        # Unpacked from left to right: the look comes before anything of RoQ.
        return _made, (_LOOK, type(self), self.__getstate__())


class _Look:
    """Becomes a call of `_look` where it is unpacked."""

    def __reduce__(self) -> tuple[Callable[[str, str], None], tuple[str, str]]:
        return _look, (roq.__version__, __name__)


_LOOK: Final = _Look()


def _look(version: str, module: str) -> None:
    """Import the package.

    Args:
        version: of the driver's RoQ.
        module: of the package, by name: what is imported is what is installed there.

    Raises:
        ImportError: it is not there, or something that it needs, or it is another version; says
            where, and what to do.
    """
    # This runs where there may be no RoQ: it knows nothing but the standard library.
    import importlib  # noqa: PLC0415
    import socket  # noqa: PLC0415
    import sys  # noqa: PLC0415

    where = f"(host {socket.gethostname()}, {sys.executable})"
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"the format roq needs the package roq on every executor: {error} {where}. Run pip "
            "install 'roq-cluster[spark]' there, or send an environment along as docs/spark.md says"
        ) from None
    there = getattr(sys.modules["roq"], "__version__", "of an unknown version")
    if there != version:
        raise ImportError(
            f"the format roq needs the same RoQ on every executor: there it is {there}, the driver "
            f"has {version} {where}. Run pip install 'roq-cluster[spark]=={version}' there, or "
            "send an environment along as docs/spark.md says"
        )


def _made(_: None, kind: type, state: dict[str, object]) -> object:
    made: object = object.__new__(kind)
    made.__dict__.update(state)
    return made


# Spark's pickler sends the code of what belongs to no module, and else no more than its name.
_look.__module__ = _made.__module__ = "__main__"
