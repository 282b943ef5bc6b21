"""The monitor of one logical queue: who publishes where, who serves, how much flows.

    exchanges    --- ExchangeReport, every KPI period --->  control (ROUTER)   monitor
                 <-- Passed: a publisher has gone elsewhere
    publishers   --- Attach, Alive, Relocated, Leave ---->  control
                 <-- Relocate, each period until it says what became of it
    subscribers  --- Join, Alive, Leave ----------------->  control
                 <-- Topology at changes, Version each second, pushed
    GCM          --- Empty, Configure ------------------->  control
                 <-- ScaleOut, ScaleIn, ElasticityRequest   a DEALER of its own
    consoles     <-- KPI documents ----------------------   statistics (PUB)
    host manager <-- ChildReport, twice a second -------    a DEALER of the process

`elasticity` decides, once per KPI period: it shows the queue (`view`) to its policy (`rules`), and
has done what this wants: publishers are moved (`moves`), exchanges emptied (`emptying`), asked for
and given back (`scaling`). The monitor is never on the way of a message: while it is away, data
flows as before.
"""
