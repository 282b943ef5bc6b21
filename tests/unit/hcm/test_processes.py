from pathlib import Path

import msgspec
from hcm_host import QUEUE_ID

from roq.hcm.events import SpawnFailed
from roq.hcm.processes import Processes
from roq.protocol.spec import ExchangeSpec
from roq.runtime.reactor import Reactor


def test_a_removed_queue_leaves_no_logs_behind_and_takes_none_of_others(tmp_path: Path) -> None:
    gone = ["q.monitor.log", "q.x1.log", "q.x12.log.1"]
    kept = ["q.x1.monitor.log", "q.more.x1.log", "other.x1.log", "q.x1.json", "q.xy.log"]
    for name in (*gone, *kept):
        (tmp_path / name).touch()
    reactor = Reactor()
    processes = Processes(reactor, tmp_path, lambda _exited: None)
    processes.forget("q")
    processes.close(kill=False)
    reactor.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_no_process_is_started_where_a_log_was_and_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / QUEUE_ID.hex() / "x7"
    values = {
        "child": "q.x7", "queue": "q", "queue_id": QUEUE_ID, "epoch": 5, "bind": "127.0.0.1",
        "advertise": "127.0.0.1", "ports": (0, 0), "manager": "", "monitor": "", "number": 7,
        "host": "127.0.0.1", "log": str(folder), "has_log": True, "limits": {},
    }  # fmt: skip
    reactor = Reactor()
    processes = Processes(reactor, tmp_path, lambda _exited: None)
    failed = processes.spawn(msgspec.convert(values, ExchangeSpec))
    processes.close(kill=True)
    reactor.close()
    assert failed == SpawnFailed("q.x7", 5, f"the log of x7 is not in {folder}", no_log=True)
    assert list(tmp_path.iterdir()) == [], "nothing was made"
