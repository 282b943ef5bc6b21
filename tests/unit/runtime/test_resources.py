"""A process that comes to the end of its means says so in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.runtime.resources import Resources, measure

MIB = 1024 * 1024


def test_measuring_finds_descriptors_and_disk(tmp_path: Path) -> None:
    found = measure(tmp_path)
    assert 0 < found.files < found.files_max
    assert 0 < found.disk_free_bytes <= found.disk_bytes


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert measure(tmp_path / "gone").disk_bytes == 0


@pytest.mark.parametrize(
    ("files", "most", "ok"), [(10, 100, True), (90, 100, True), (91, 100, False), (10**6, 0, True)]
)
def test_descriptors_nearly_used_up_are_a_warning(files: int, most: int, ok: bool) -> None:
    (check,) = Resources(files, most).checks()
    assert (check.name, check.ok, check.essential) == ("files", ok, False)
    assert ok or "LimitNOFILE" in check.detail


def test_a_child_that_comes_to_its_end_is_named() -> None:
    (check,) = Resources(10, 100, others={"orders.x1": 95, "orders.x2": 5}).checks()
    assert not check.ok
    assert check.detail.startswith("orders.x1 has 95 of 100 descriptors open; raise")


@pytest.mark.parametrize(
    ("total", "free", "low"),
    [
        (100_000 * MIB, 1_001 * MIB, False),
        (100_000 * MIB, 999 * MIB, True),
        (10_000 * MIB, 257 * MIB, False),
        (10_000 * MIB, 255 * MIB, True),
        (64 * MIB, 7 * MIB, False),
        (64 * MIB, 6 * MIB, True),
    ],
)
def test_a_disk_is_nearly_full_by_share_and_by_bytes(total: int, free: int, low: bool) -> None:
    _, check = Resources(1, 10, total, free).checks(Path("/data"))
    assert (check.name, check.ok) == ("disk", not low)
    assert "/data" in check.detail
