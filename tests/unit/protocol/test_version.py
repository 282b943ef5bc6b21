"""Which version of the wire a document speaks, and what its sender is told."""

import pytest

from roq.protocol.version import FIELD, FIRST, WIRE_VERSION, other_version, spoken_in


def test_who_does_not_say_speaks_the_first_version() -> None:
    assert spoken_in({}) == FIRST
    assert spoken_in({FIELD: WIRE_VERSION}) == WIRE_VERSION


@pytest.mark.parametrize("version", [1, 3, "two", None, "x" * 1_000])
def test_a_refusal_names_both_versions_and_is_short(version: object) -> None:
    text = other_version("the client", version, "the server")
    assert text.startswith("the client speaks version ")
    assert f"the server version {WIRE_VERSION}" in text
    assert f"{version!r}"[:20] in text
    assert len(text) < 250
