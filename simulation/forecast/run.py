"""One run of the model, as people and programs ask for it: it ends in a folder like a live run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from roq.simulation.forecast import record
from roq.simulation.forecast.case import Case
from roq.simulation.forecast.order import RunOrder, case_of
from roq.simulation.forecast.outcome import Outcome
from roq.simulation.forecast.work import Here, Processes, Workers, play_all
from roq.simulation.lab.archive import folder as folders
from roq.simulation.lab.archive.document import RunKind
from roq.simulation.real.results import measured

Progress = Callable[[int, int], None]
"""Is told (parts that are done, of how many)."""


def untold(_done: int, _total: int) -> None:
    """It is not shown how far it is."""


def run(order: RunOrder, progress: Progress = untold) -> Path:
    """Play a scenario on the model; gives the folder with what came out.

    When it is interrupted, the run there says so.

    Args:
        order: what is to be played.
        progress: is told how far it is.

    Raises:
        ConfigError: it cannot be played; nothing is written then.
        RunError: the folder cannot be written.
    """
    case = record.detailed(case_of(order, order.scenario), order.seed)
    case.as_played()  # what could not be read again is refused before it is played
    workers: Workers = Here() if order.workers == 1 else Processes(order.workers)
    began = time.time()
    name = folders.new_id(case.scenario.name, RunKind.MODEL, began)
    with folders.kept_if_filled(order.out, name) as folder:
        with measured() as machine:
            found = _play(case, workers, progress)
        asked = record.Asked(order=order, case=case, began=began, took=time.time() - began)
        if found is not None:
            folders.write_series(folder, record.series_of(case, found))
        folders.write_run(folder, record.run_of(folder.name, asked, machine, found))
    return folder


def _play(case: Case, workers: Workers, progress: Progress) -> Outcome | None:
    """What came out; None if it was interrupted."""
    try:
        for done, (_, outcome) in enumerate(play_all([case], workers), start=1):
            progress(done, case.cells)
            if outcome is not None:
                return outcome
    except KeyboardInterrupt:
        progress(case.cells, case.cells)
    return None
