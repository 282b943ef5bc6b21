"""A host manager in a thread, with a registry in memory and a leader of the test's own."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

from fake_leader import FakeLeader

from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.coordination.registry_contract import Post
from roq.hcm.config import Children, Data, Exchange, Gcm, HcmConfig, Monitor, Network, Statmonitor
from roq.hcm.daemon import HostManager


def hcm_config(folder: Path, leader: FakeLeader, **sections: object) -> HcmConfig:
    values: dict[str, object] = {
        "gcm": Gcm(address=[leader.address]),
        "network": Network(port=0),
        "monitor": Monitor(base_port=0),
        "statmonitor": Statmonitor(base_port=0),
        "exchange": Exchange(base_port=0),
        "data": Data(dir=str(folder)),
        "children": Children(start_seconds=60.0, crash_window_seconds=600.0),
        **sections,
    }
    return HcmConfig(**values)  # type: ignore[arg-type]


class RunningHost:
    """A host manager in a thread of this process; its children are real processes."""

    def __init__(self, config: HcmConfig, ensemble: MemoryEnsemble) -> None:
        self.ready = threading.Event()
        self.code: int | None = None
        self.registries: list[MemoryRegistry] = []
        self.manager = HostManager(
            config, partial(self._registry, ensemble), lambda _description: self.ready.set()
        )
        self.control = self.manager.control
        self._thread = threading.Thread(target=self._run, name="host manager")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.code = self.manager.run()
        finally:
            self.manager.close()

    def _registry(self, ensemble: MemoryEnsemble, post: Post) -> MemoryRegistry:
        self.registries.append(MemoryRegistry(ensemble, post))
        return self.registries[-1]

    def stop(self) -> None:
        self.manager.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()
