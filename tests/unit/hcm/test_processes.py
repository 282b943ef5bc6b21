from pathlib import Path

from roq.hcm.processes import Processes
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
