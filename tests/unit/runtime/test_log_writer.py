"""A log that cannot be written costs lines, and nothing else."""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from roq.runtime.log_writer import PIECE_BYTES, LogWriter


def logger_to(stream: TextIO | None) -> logging.Logger:
    logger = logging.Logger("roq.test")  # noqa: LOG001 - one of its own for each test
    logger.addHandler(LogWriter(stream))
    return logger


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    read, write = os.pipe()
    with os.fdopen(read) as reader, os.fdopen(write, "w") as writer:
        yield reader, writer


class Full(io.StringIO):
    """A file on a disk that is full, or not."""

    full = False

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_the_next_line_that_can_be_written_tells_how_many_were_lost() -> None:
    stream = Full()
    log = logger_to(stream)
    log.info("one")
    stream.full = True
    for _ in range(3):
        log.info("lost")
    stream.full = False
    log.info("two")
    log.info("three")
    assert stream.getvalue().splitlines() == [
        "one",
        "3 lines before this could not be written: No space left on device",
        "two",
        "three",
    ]


def test_a_full_disk_is_no_error() -> None:
    with Path("/dev/full").open("w") as full:
        logger_to(full).error("nobody will read this")


def test_a_pipe_that_nobody_reads_makes_nobody_wait(pipe: tuple[TextIO, TextIO]) -> None:
    reader, writer = pipe
    log = logger_to(writer)
    for _ in range(100):
        log.info("x" * PIECE_BYTES)
    os.set_blocking(reader.fileno(), False)
    reader.read()
    log.info("the end")
    text = reader.read()
    assert "lines before this could not be written: nobody reads them\nthe end\n" in text


def test_a_line_that_was_cut_off_is_not_taken_for_the_beginning_of_the_next(
    pipe: tuple[TextIO, TextIO],
) -> None:
    reader, writer = pipe
    log = logger_to(writer)
    log.info("x" * 1_000_000)  # more than any pipe holds
    os.set_blocking(reader.fileno(), False)
    reader.read()
    log.info("the end")
    assert reader.read().splitlines()[0] == ""


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as writer:
        logger_to(writer).info("nobody will read this")


def test_a_stream_that_was_closed_is_no_error(tmp_path: Path) -> None:
    text = io.StringIO()
    log = logger_to(text)
    text.close()
    log.info("nobody will read this")
    logger_to(None).info("nor this")


def test_a_record_that_cannot_be_written_names_its_place() -> None:
    stream = io.StringIO()
    logger_to(stream).info("%d messages", "many")
    assert "test_log_writer.py" in stream.getvalue()
    assert "%d format" in stream.getvalue()


def test_what_is_no_text_is_escaped(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        logger_to(stream).info("a\udcffb")
    assert (tmp_path / "log").read_text() == "a\\udcffb\n"
