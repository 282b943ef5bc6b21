"""The public commands about hosts: what may be placed there, and what is to go."""

from __future__ import annotations

import msgspec


class Public(msgspec.Struct, frozen=True, kw_only=True, tag_field="CMD", omit_defaults=True):
    """Base of every public request."""


class CordonHost(Public, frozen=True, kw_only=True, tag=2110):
    """Place nothing new on a host; what is there stays."""

    Host: str


class UncordonHost(Public, frozen=True, kw_only=True, tag=2111):
    """Place on a host as on any other; takes `CordonHost` and `DrainHost` back."""

    Host: str


class DrainHost(Public, frozen=True, kw_only=True, tag=2112):
    """Cordon a host, and have everything on it go elsewhere; answered as soon as that is noted."""

    Host: str


class RemoveHost(Public, frozen=True, kw_only=True, tag=2113):
    """Forget a host that is gone."""

    Host: str
    Force: bool = False
    """Its machine is gone for good: what belongs there is lost, and set up again elsewhere."""


HostRequest = CordonHost | UncordonHost | DrainHost | RemoveHost
