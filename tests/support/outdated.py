"""A rule of requests that is broken on purpose; no test in here."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from roq.log.leases import Lease, Member
from roq.log.service_group import ServiceGroup
from roq.protocol.requesting import Answer


def an_outdated_attempt_answers(patch: pytest.MonkeyPatch) -> None:
    """The number of a lease is not looked at: whoever has had the request may answer it."""
    lend, answer = ServiceGroup._lease, ServiceGroup.answer_all
    offsets: dict[int, int] = {}

    def remember(self: ServiceGroup[bytes], *given: object) -> Lease:
        lease: Lease = lend(self, *given)  # type: ignore[arg-type]
        offsets[lease.number] = lease.offset
        return lease

    def careless(
        self: ServiceGroup[bytes], member: Member, number: int, answers: Iterable[Answer]
    ) -> int:
        if number in member.leases or number not in offsets:
            return answer(self, member, number, answers)
        batch, taken = self._requests.batches.get(offsets[number]), 0
        for each in answers:
            lease = None if batch is None else batch.holder(each.index)
            if lease is not None:
                mine = msgspec.structs.replace(each, lease=lease.number)
                taken += answer(self, lease.member, lease.number, [mine])
        return taken

    patch.setattr(ServiceGroup, "_lease", remember)
    patch.setattr(ServiceGroup, "answer_all", careless)
