"""A whole cluster on this machine: configuration managers, host managers, a registry.

Each is a process of its own, as on real hosts; the hosts are loopback addresses (127.0.0.1,
127.0.0.2, …). `roq up` and `roq.testing.cluster()` are two shells over the same `Launcher`.

    settings.py   what is wanted, and the configuration files that follow from it
    ports.py      a base port whose neighbours are free as well
    plan.py       which processes there are, with their addresses and commands
    part.py       one process: its log, its ready line, its end
    launcher.py   starts all at once, waits for all, starts again what dies, stops all in order
    background.py a launcher in a thread, for programs that have something else to do
"""
