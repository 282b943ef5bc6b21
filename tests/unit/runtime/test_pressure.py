"""What the kernel tells of waiting for a processor, in files of paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from roq.runtime.pressure import Quota, waited_us

PSI = "some avg10=0.57 avg60=0.86 avg300=0.44 total=7619995\nfull avg10=0.00 total=3\n"
STAT = "nr_periods {}\nnr_throttled {}\nthrottled_time 5\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_time_that_somebody_has_waited(tmp_path: Path) -> None:
    write(tmp_path / "pressure/cpu", PSI)
    assert waited_us(tmp_path) == 7_619_995


@pytest.mark.parametrize("text", ["", "nonsense", "full total=3", "some total=x"])
def test_a_kernel_that_does_not_tell_is_no_error(tmp_path: Path, text: str) -> None:
    assert waited_us(tmp_path) is None
    write(tmp_path / "pressure/cpu", text)
    assert waited_us(tmp_path) is None
    assert Quota(tmp_path, tmp_path).periods() is None


@pytest.mark.parametrize(
    ("lines", "mount"),
    [
        ("2:cpuset:/\n1:cpu:/a/b\n0::/\n", "cpu"),
        ("1:cpu,cpuacct:/a/b\n", "cpu,cpuacct"),
        ("0::/a/b\n", "."),
    ],
)
def test_the_quota_of_the_group_that_is_held_back_most_counts(
    tmp_path: Path, lines: str, mount: str
) -> None:
    write(tmp_path / "proc/self/cgroup", lines)
    root = tmp_path / "cgroup" / mount
    write(root / "a/b/cpu.stat", STAT.format(10, 2))
    write(root / "a/cpu.stat", STAT.format(100, 40))
    write(root / "cpu.stat", STAT.format(0, 0))
    assert Quota(tmp_path / "proc", tmp_path / "cgroup").periods() == (100, 40)
