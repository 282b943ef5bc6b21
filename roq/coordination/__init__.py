"""What outlives a process: definitions, who leads, which hosts live.

    registry_contract.py   what managers may ask: the `Registry` protocol, for one event loop
    registry.py   the one implementation of it, on top of a `Store`
    election.py   who leads
    counter.py    epochs, none of which is given twice
    registration.py   a host's node, kept over lost sessions
    store_contract.py   the few primitives an ensemble offers, as a protocol
    memory.py     a store in memory, for tests and simulation, with switches for faults
    zookeeper.py  the store of clusters of several machines, on top of kazoo, which only it knows
    kazoo_client.py   how that client is made
    file.py       the store of clusters on one machine, in a file
    database.py   that file: nodes and sessions in SQLite, and where it must not lie;
                  session_locks.py: which of the sessions live
    addresses.py  where a registry is, checked, and which store belongs to it
    embedded.py   a ZooKeeper server as a child process

Nothing here is on the way of a message: exchanges, publishers and subscribers never see it.
"""
