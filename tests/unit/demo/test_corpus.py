"""The input of the demo."""

from __future__ import annotations

from pathlib import Path

from roq.demo import corpus


def library(root: Path) -> Path:
    (root / "package" / "__pycache__").mkdir(parents=True)
    (root / "site-packages").mkdir()
    (root / "a.py").write_bytes(b"one\ntwo\n")
    (root / "b.py").write_bytes(b"no end")
    (root / "c.py").write_bytes(b"")
    (root / "package" / "d.py").write_bytes(b"\r\nx\x0by\n")
    (root / "package" / "__pycache__" / "e.py").write_bytes(b"no\n")
    (root / "site-packages" / "f.py").write_bytes(b"no\n")
    return root


def test_all_files_but_foreign_ones_are_dealt_out(tmp_path: Path) -> None:
    shares = corpus.shares(library(tmp_path), 2)
    assert [share.lines for share in shares] == [2, 3]
    assert [share.bytes for share in shares] == [8, 12]
    assert {source.topic for share in shares for source in share.sources} == set(corpus.TOPICS)


def test_the_counts_are_those_of_the_lines(tmp_path: Path) -> None:
    for share in corpus.shares(library(tmp_path), 1):
        contents = [data for _, data in corpus.read(share)]
        lines = [line for data in contents for line in corpus.lines_of(data)]
        assert len(lines) == share.lines
        assert b"".join(lines) == b"".join(contents)


def test_dealing_ends_after_the_wanted_number_of_lines(tmp_path: Path) -> None:
    shares = corpus.shares(library(tmp_path), 2, lines_max=2)
    assert sum(share.lines for share in shares) == 2


def test_the_real_library_has_hundreds_of_files() -> None:
    assert len(corpus.find(corpus.library())) > 200
