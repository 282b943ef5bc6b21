"""`python -m …chaos_spark.keeper FOLDER`: cleans up after a run; see folder.py."""

from __future__ import annotations

import sys
from pathlib import Path

from roq.simulation.experiments.chaos_spark.folder import keep

if __name__ == "__main__":
    keep(Path(sys.argv[1]))
