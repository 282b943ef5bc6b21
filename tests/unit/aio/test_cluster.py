"""The cluster of `roq.aio` over that for threads, which is made up here."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from roq.aio import Cluster, Service
from roq.client import cluster as sync


class MadeUp:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[object, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def ask(*args: object, **kwargs: Any) -> str:
            self.asked.append((name, args, kwargs))
            return name

        return ask


def test_arguments_are_handed_on_and_results_back() -> None:
    asked = MadeUp()
    cluster = Cluster(cast("sync.Cluster", asked))

    async def main() -> None:
        assert cast("str", await cluster.describe("q")) == "describe"
        await cluster.create_queue("q", exists_ok=True)
        assert isinstance(cluster.service("s", "q", threads=2), Service)

    asyncio.run(main())
    assert asked.asked == [
        ("describe", ("q",), {}),
        ("create_queue", ("q",), {"exists_ok": True}),
        ("service", ("s", "q"), {"threads": 2}),
    ]
