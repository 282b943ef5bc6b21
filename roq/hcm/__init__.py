"""The host configuration manager: one per host, parent of its monitors and exchanges.

    leading GCM  <-- HostReport, each second and at changes --   a DEALER
                 --- StartMonitor, StartExchange, StopQueue -->  control (ROUTER, port 5100)
    children     --- ChildReport, twice a second ------------>   control
    the registry <-- an ephemeral node, one epoch per life ---   the registry

    machine.py       what is wanted, by whom, and who is told
    supervisor.py    how a child starts, crashes, hangs, is given up, and ends
    liveness.py      which child hangs: by silence, and by what the system says of the process
    crash_history.py when it is started again, and when not any more
    children.py      what is known of each; of two processes of one child the later has the higher
                     epoch
    leader.py        the configuration manager that leads, and when it gets a report
    records.py       which process a child is, on disk, for the next life of this process
    processes.py     started, adopted, looked at, ended

No message of a user passes here; when this process dies, its children go on, and the next one
adopts them.
"""
