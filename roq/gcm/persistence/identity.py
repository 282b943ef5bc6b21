"""Whether a manager belongs to the cluster that a registry holds."""

from __future__ import annotations


def problem(found: str | None, mine: str, *, remembers: bool) -> str:
    """Why a manager may not lead in a registry; empty if it may.

    Args:
        found: the identity that stands there; None if there is none, empty if it cannot be one.
        mine: that of the cluster to which the manager belongs; empty if it has none yet.
        remembers: whether it knows all that stood in the registry of its cluster.
    """
    if found == "" and not remembers:
        return (
            "/cluster in the registry holds no identity of a cluster: this manager changes "
            f"nothing. Set it to {mine or 'the one that the logs of the host managers name'}"
        )
    if not mine or found == mine:
        return ""
    if found:
        return (
            f"the registry holds cluster {found} now, and this manager belongs to {mine}: it "
            "changes nothing. Remove that cluster from it, bring the data of this one back, or "
            "restart this manager to have it join the other"
        )
    if remembers:
        return ""
    return (
        f"the registry is empty, and this manager remembers nothing of cluster {mine}: it does not "
        "lead until one that does has written it back. Bring its data back, or restart "
        "all configuration managers to begin a new cluster"
    )
