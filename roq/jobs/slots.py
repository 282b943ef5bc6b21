"""Slots in SQL: the right to run one more job of a type that has a limit in the whole cluster.

They are rows, as many as the limit; an instance holds one for each job that it runs. If the limit
is lowered while more run, the slots of those count, under numbers below 0, until they have ended:
so nothing begins before fewer run than it allows, whatever becomes of the limit meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import sqlalchemy as sa

from roq.jobs.database import JobDatabase
from roq.jobs.rows import Want

_BEYOND: Final = "(number >= :most OR number < 0)"
_BEYOND_OR_NO_MORE: Final = "(number >= :most OR (number < 0 AND -1 - number < :most))"


class JobSlots:
    """The SQL of slots.

    Args:
        database: where they are.
    """

    def __init__(self, database: JobDatabase) -> None:
        self._database = database

    def make(self, connection: sa.Connection, name: str, limit: int) -> None:
        """Have a type have so many; 0: it has no limit."""
        # Who takes some just now is waited for, and seen by what follows.
        self._database.run(
            connection,
            "SELECT number FROM job_slot WHERE type = :name ORDER BY number"
            + self._database.for_change,
            name=name,
        ).all()
        for change in (
            f"DELETE FROM job_slot WHERE (:most = 0 OR owner IS NULL) AND {_BEYOND}",
            f"UPDATE job_slot SET number = -1 - number WHERE {_BEYOND_OR_NO_MORE}",
        ):
            self._database.run(connection, f"{change} AND type = :name", name=name, most=limit)
        self._database.run(
            connection,
            "INSERT INTO job_slot (type, number) SELECT type, number FROM "
            + self._database.given(("type", "text"), ("number", "bigint"))
            + " AS d WHERE true ON CONFLICT (type, number) DO NOTHING",
            [[name, number] for number in range(limit)],
        )

    def take(self, connection: sa.Connection, owner: int, want: Want, number: int) -> int:
        """How many jobs of a limited type may be claimed: slots are taken for them, and what this
        instance does not need is given back."""
        number = min(number, want.most, self._room(connection, owner, want))
        free = self._held(connection, owner, want) - want.running
        if free < number:
            got = self._database.run(
                connection,
                "UPDATE job_slot SET owner = :owner WHERE type = :type AND number IN (SELECT number"
                " FROM job_slot WHERE type = :type AND owner IS NULL AND number >= 0"
                f" ORDER BY number LIMIT :most{self._database.skip_locked}) RETURNING number",
                owner=owner,
                type=want.type,
                most=number - free,
            ).all()
            return min(number, max(0, free + len(got)))
        self._give(connection, owner, want, free - number)
        return number

    def give_back(self, connection: sa.Connection, owner: int, wants: Collection[Want]) -> None:
        """Give back what this instance does not need of the slots of these types."""
        if not wants:
            return
        rows = self._database.run(
            connection,
            "SELECT type, count(*) AS number FROM job_slot WHERE owner = :owner GROUP BY type",
            owner=owner,
        )
        held = {row.type: row.number for row in rows}
        for want in wants:
            if held.get(want.type, 0) > want.running:
                self.take(connection, owner, want, 0)

    def _held(self, connection: sa.Connection, owner: int, want: Want) -> int:
        held: int = self._database.run(
            connection,
            "SELECT count(*) FROM job_slot WHERE type = :type AND owner = :owner",
            type=want.type,
            owner=owner,
        ).scalar_one()
        return held

    def _give(self, connection: sa.Connection, owner: int, want: Want, number: int) -> None:
        """Give so many back, those below 0 first."""
        if number > 0:
            self._database.run(
                connection,
                "UPDATE job_slot SET owner = NULL WHERE type = :type AND number IN (SELECT number"
                " FROM job_slot WHERE type = :type AND owner = :owner ORDER BY number"
                " LIMIT :most)",
                owner=owner,
                type=want.type,
                most=number,
            )

    def _room(self, connection: sa.Connection, owner: int, want: Want) -> int:
        """How many jobs may begin in the whole cluster, if a limit was lowered; else all."""
        run = self._database.run
        below = "SELECT count(*) FROM job_slot WHERE type = :type AND number < 0"
        if not run(connection, below, type=want.type).scalar_one():
            return want.most
        self._database.lock(connection, [f"roq.jobs.slots {want.type}"])
        free = self._held(connection, owner, want) - want.running
        self._give(connection, owner, want, free)
        run(
            connection,
            "DELETE FROM job_slot WHERE type = :type AND number < 0 AND owner IS NULL",
            type=want.type,
        )
        left: int = run(
            connection,
            "SELECT coalesce(sum(CASE WHEN number >= 0 THEN 1 ELSE 0 END), 0) - count(owner)"
            " FROM job_slot WHERE type = :type",
            type=want.type,
        ).scalar_one()
        return max(0, int(left))
