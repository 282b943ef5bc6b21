"""Whether what keeps a contract has all that the contract names; no test in here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator


def members(contract: type) -> dict[str, object]:
    """What a protocol, and those that it is made of, names."""
    found: dict[str, object] = {}
    for each in reversed(contract.__mro__):
        if getattr(each, "_is_protocol", False) and each.__module__.startswith("roq."):
            found |= {name: value for name, value in vars(each).items() if not name.startswith("_")}
    return found


def broken(contract: type, kept_by: object) -> list[str]:
    """What of the contract a class, or an object if it has more than its class, does not keep."""
    return list(_broken(contract, kept_by))


def _broken(contract: type, kept_by: object) -> Iterator[str]:
    kind = kept_by if isinstance(kept_by, type) else type(kept_by)
    for name, wanted in members(contract).items():
        if not hasattr(kept_by, name):
            yield f"{kind.__name__} has no {name}"
        elif inspect.isfunction(wanted):
            asked = _arguments(wanted)[1:]
            taken = _arguments(getattr(kept_by, name))[isinstance(kept_by, type) :]
            if len(taken) != len(asked) or not all(map(_alike, asked, taken)):
                yield f"{kind.__name__}.{name} takes {taken}, not {asked}"


def _arguments(function: object) -> list[inspect.Parameter]:
    """Names, kinds and defaults."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return [each.replace(annotation=inspect.Parameter.empty) for each in parameters]


def _alike(asked: inspect.Parameter, taken: inspect.Parameter) -> bool:
    """One that is not looked at may be called otherwise."""
    if taken.name.startswith("_"):
        asked = asked.replace(name=taken.name)
    return asked == taken
