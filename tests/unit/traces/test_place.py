"""Where traces are: which parts count, and what a place that cannot be used says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import RUN, Story, queue

from roq.simulation.lab.traces.collect import MERGED, due_at
from roq.simulation.lab.traces.place import Part, Place, TracesError, located, standing
from roq.simulation.lab.traces.tables import KPI


def written(folder: Path, *batches: int) -> Place:
    for batch in batches:
        story = Story()
        story.document(1.0, queue(1))
        story.write(folder, batch=batch)
    return Place(str(folder), RUN)


def test_what_lies_within_a_larger_part_does_not_count() -> None:
    parts = [Part(3, 3), Part(0, 1), Part(0, 0), Part(2, 2), Part(1, 1), Part(4, 7), Part(4, 4)]
    assert standing(parts) == [Part(0, 1), Part(2, 2), Part(3, 3), Part(4, 7)]
    assert standing([]) == []


@given(st.integers(0, 10_000))
def test_whenever_it_ends_each_micro_batch_is_in_one_part_and_parts_are_few(last: int) -> None:
    parts: list[Part] = []
    for batch in range(last + 1):
        parts.append(Part(batch, batch))
        due = due_at(batch)
        if due is not None:
            parts = [each for each in parts if each.first < due.first] + [due]
    assert [number for each in parts for number in range(each.first, each.last + 1)] == list(
        range(last + 1)
    )
    assert standing(parts) == parts
    assert len(parts) <= 4 * (MERGED - 1)


def test_only_what_is_whole_counts(tmp_path: Path) -> None:
    place = written(tmp_path, 0, 1, 2)
    root = tmp_path / f"run={RUN}"
    (root / "batches=1-1" / "_SUCCESS").unlink()
    (root / "notes").mkdir()
    (root / "batches=x").mkdir()
    (root / "batches=x" / "_SUCCESS").touch()
    assert place.parts == [Part(0, 0), Part(2, 2)]
    files = place.files()
    assert {path.rpartition("/")[0] for path in files} == {
        f"batches=0-0/table={KPI}", f"batches=2-2/table={KPI}",
    }  # fmt: skip
    assert all(size > 100 for size in files.values())


def test_what_was_merged_goes(tmp_path: Path) -> None:
    place = written(tmp_path, 0, 1, 2)
    root = tmp_path / f"run={RUN}"
    (root / "batches=0-1").mkdir()
    place.clear()
    assert len(place.parts) == 3, "a part that is not whole replaces nothing"
    (root / "batches=0-1" / "_SUCCESS").touch()
    place.clear()
    assert place.parts == [Part(0, 1), Part(2, 2)]
    assert not (root / "batches=0-0").exists()


def test_a_place_is_the_same_whatever_the_default_file_system_of_spark_is(tmp_path: Path) -> None:
    assert located(str(tmp_path)) == f"file://{tmp_path}"
    assert located(f"file://{tmp_path}/") == f"file://{tmp_path}"
    assert located("s3a://bucket/traces/") == "s3a://bucket/traces"
    assert located("hdfs://name:8020/traces") == "hdfs://name:8020/traces"
    assert located("traces") == f"file://{Path.cwd()}/traces"
    spaced = tmp_path / "a folder 50% full"
    assert written(spaced, 0).parts == Place(f"file://{spaced}", RUN).parts == [Part(0, 0)]


def test_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(TracesError, match=r"cannot be called '\.\./up'"):
        Place(str(tmp_path), "../up")
    with pytest.raises(TracesError, match="gopher://x/y: traces cannot be kept there"):
        Place("gopher://x/y", RUN)
    place = Place(str(tmp_path), RUN)
    assert place.parts == []
    assert place.names("checkpoint") == []
    with pytest.raises(TracesError, match="cannot be read"):
        place.text("checkpoint/offsets/0")
    with pytest.raises(TracesError, match="cannot be removed"):
        place.remove("batches=0-0")
