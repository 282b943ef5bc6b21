"""Hosts for clusters that have no free slot left.

A provider makes and removes hosts: machines, containers or processes that run one host manager
(`roq host`) each. The leading configuration manager asks it when a queue must grow and every host
is full, and gives a host back when nothing runs on it any more.

    leading GCM ── create(HostRequest) ──> Provider ── starts ──> host manager
         ^                                                            │
         └────────────────── registers by itself, and reports ────────┘

`port` is the contract, `choice` finds the provider that `gcm.toml` names, `local` and `docker` are
the two that come with RoQ. docs/providers.md says how to write another one.
"""
