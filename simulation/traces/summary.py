"""What the traces of a run say: figures and the series of windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simulation.archive.document import Run, Series

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def summarise(
    spark: SparkSession, folder: Path, run: Run, *, leave_out: bool = False
) -> tuple[dict[str, float], Series]:
    """The figures and the series of a live run.

    Args:
        spark: does the work.
        folder: of the run, with its traces.
        run: what was asked, when the load began (`began_us`) and how long it took (`seconds`).
        leave_out: go on without files that are damaged.

    Returns:
        Figures by name (docs/simulation.md says what each means; those that the traces do not tell
        are missing), and what happened window by window.

    Raises:
        TracesError: a file is damaged; names it.
    """
    return {}, Series(window_seconds=1.0, windows=[])
