"""Shares of a limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roq.policy.sharing import fair_share, lent

IDS = st.sets(st.integers(1, 1_000), min_size=1, max_size=12)


@given(st.integers(0, 100), IDS, st.text(max_size=5))
def test_shares_add_up_and_differ_by_one_at_most(limit: int, ids: set[int], name: str) -> None:
    shares = [fair_share(limit, ids, me, name) for me in ids]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


def test_the_rest_goes_to_others_for_another_type() -> None:
    ids = range(8)
    first = {next(me for me in ids if fair_share(1, ids, me, f"type {n}")) for n in range(40)}
    assert len(first) > 4


@given(st.integers(1, 100), IDS, st.data())
def test_what_others_do_not_want_is_lent(limit: int, ids: set[int], data: st.DataObject) -> None:
    me = data.draw(st.sampled_from(sorted(ids)))
    assert lent(limit, ids, [], me, "A") == lent(limit, ids, [me], me, "A") == limit
    hungry = ids - {me}
    if hungry:
        assert lent(limit, ids, hungry, me, "A") == fair_share(limit, ids, me, "A")
