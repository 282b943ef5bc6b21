"""The host configuration manager: one per host, parent of its monitors and exchanges.

    leading GCM  <-- HostReport, each second and at changes --   a DEALER
                 --- StartMonitor, StartExchange, StopQueue -->  control (ROUTER, port 5100)
    children     --- ChildReport, each second --------------->   control
    ZooKeeper    <-- an ephemeral node, one epoch per life ---   the registry

No message of a user passes here; when this process dies, its children go on for a while.
"""
