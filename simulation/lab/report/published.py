"""Figures that others have published of a scenario, kept beside it as `<name>.published.json`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from roq.simulation.lab.archive.folder import RunError
from roq.simulation.lab.report.wording import clean, quantity
from roq.simulation.scenario.reading import FOLDER


class PublishedError(RunError):
    """The file beside a scenario is damaged; the text says which and how."""


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published figure: from `least` to `most`, which are the same where one number is known."""

    least: float
    most: float

    def text(self, unit: str) -> str:
        """As it is shown: `5 ms to 16 ms`."""
        if self.least == self.most:
            return quantity(self.least, unit)
        return f"{quantity(self.least, unit)} to {quantity(self.most, unit)}"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    source: str
    figures: dict[str, float | Span]


class Published(msgspec.Struct, frozen=True):
    """What was published.

    Attributes:
        name: heading of its column.
        source: where it comes from and under which circumstances, in sentences.
        figures: by the names of those of runs.
    """

    name: str
    source: str
    figures: dict[str, Span]


def published(scenario: str, folder: Path = FOLDER) -> Published | None:
    """What was published of a scenario; None if nothing is known.

    Args:
        scenario: its name.
        folder: of the scenarios.

    Raises:
        PublishedError: the file is damaged.
    """
    path = folder / f"{scenario}.published.json"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PublishedError(f"{path}: {error}") from None
    return Published(
        name=clean(found.name, 60),
        source=clean(found.source),
        figures={
            name: value if isinstance(value, Span) else Span(value, value)
            for name, value in found.figures.items()
        },
    )
