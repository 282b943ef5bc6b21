"""What PgQueuer is given."""

from __future__ import annotations

from roq.benchmarks.contenders.pgqueuer_jobs import PgQueuerJobs
from roq.benchmarks.contenders.postgres_server import BLOCK


class Queries:
    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def enqueue(self, names: list[str], payloads: list[bytes], priorities: list[int]) -> None:
        assert len(names) == len(payloads) == len(priorities) <= BLOCK
        self.payloads += payloads


def test_each_list_has_a_name_and_a_priority_for_each_job() -> None:
    jobs, queries = PgQueuerJobs(lambda: ""), Queries()
    jobs._queries = queries
    jobs.submit(BLOCK + 3)
    assert queries.payloads == [str(number).encode() for number in range(BLOCK + 3)]
