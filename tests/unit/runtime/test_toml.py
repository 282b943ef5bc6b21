"""Settings as TOML: what is written is what is read back."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import ConfigError
from roq.runtime.toml import to_toml

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
VALUES = (
    TEXT
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(TEXT, max_size=3)
)


@given(VALUES)
def test_every_value_survives(value: object) -> None:
    assert tomllib.loads(to_toml({"s": {"k": value}}, {})) == {"s": {"k": value}}


def test_single_keys_are_replaced_and_added() -> None:
    text = to_toml({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}, "b.c": {"z": True}})
    assert tomllib.loads(text) == {"a": {"x": 1, "y": 3}, "b": {"c": {"z": True}}}


@pytest.mark.parametrize("name", ["", "a b", "a]\n[b", 'a"', "a..b", ".a", "é"])
def test_a_name_that_would_break_the_file_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a setting"):
        to_toml({name: {}}, {})
    with pytest.raises(ConfigError, match="cannot be the name of a setting"):
        to_toml({"s": {name: 1}}, {})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="k must be a finite number"):
        to_toml({"s": {"k": value}}, {})
