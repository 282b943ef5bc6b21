"""The monitor of one logical queue: who publishes where, who serves, how much flows.

    exchanges    --- ExchangeReport, every KPI period --->  control (ROUTER)   monitor
    publishers   --- Attach, Alive, Leave -------------->   control
    subscribers  --- Join, Alive, Leave ---------------->   control
                 <-- Topology at changes, Version each second, pushed
    consoles     <-- KPI documents ---------------------    statistics (PUB)
    host manager <-- ChildReport each second ----------     a DEALER of its own

It is never on the way of a message: while it is away, data flows as before.
"""
