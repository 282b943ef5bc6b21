"""The `hcm.toml` of a host that a provider makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roq.coordination.addresses import FILE
from roq.provider.port import HostRequest
from roq.runtime.config import Section, to_toml

CONNECT_SECONDS: Final = 20.0
"""A host manager that cannot reach the registry for so long ends."""

Sections = Mapping[str, Section]


def host_configuration(request: HostRequest, *, usual: Sections, wanted: Sections,
                       place: Sections) -> str:  # fmt: skip
    """Its text.

    Args:
        request: where the cluster is, and what the host is to have.
        usual: settings that both `wanted` and the request may change.
        wanted: settings out of the provider's options; the request may change them.
        place: where the host listens and keeps its data; nobody may change that.

    Raises:
        ConfigError: a name or value that a configuration file cannot have.
    """
    cluster: Sections = {
        "gcm": {"address": request.managers},
        **_registry(request),
    }
    merged: dict[str, dict[str, str | int | float | bool | list[str]]] = {
        "zk": {"connect_seconds": CONNECT_SECONDS}
    }
    for sections in (usual, wanted, request.settings, cluster, place):
        for name, values in sections.items():
            merged.setdefault(name, {}).update(values)
    return to_toml(merged, {})


def _registry(request: HostRequest) -> Sections:
    if request.zookeeper.startswith(FILE):
        return {"registry": {"address": request.zookeeper}}
    return {"zk": {"servers": request.zookeeper, "root": request.zookeeper_root}}
