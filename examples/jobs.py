"""Jobs in a file of SQLite: submitted, run in threads, one of them tried again.

python examples/jobs.py
"""

import tempfile
from pathlib import Path

import roq

with tempfile.TemporaryDirectory() as folder, roq.Jobs(str(Path(folder) / "jobs.db")) as jobs:

    @jobs.type("Square", restartable=True)
    def square(job: roq.Job, params: int) -> int:
        if params == 3 and job.attempt == 1:
            raise ValueError("not at the first try")
        return params * params

    handles = square.submit_many(range(5))
    last = square.submit(10, after=handles)  # when all others are complete
    jobs.start(threads=2)
    print(*(handle.result(timeout=30) for handle in [*handles, last]))
    for row in jobs.operate.counts():
        print(row.type, row.status, row.number, "jobs,", row.failures, "failure")
