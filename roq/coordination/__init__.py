"""What outlives a process: definitions, who leads, which hosts live.

    port.py       what managers may ask: the `Registry` protocol, made for one event loop
    registry.py   the one implementation of it, on top of a `Store`
    campaign.py   who leads
    counter.py    epochs, none of which is given twice
    registration.py   a host's node, kept over lost sessions
    store.py      the few primitives an ensemble offers, as a protocol
    memory.py     a store in memory, for tests and simulation, with switches for faults
    zookeeper.py  the store of real clusters, on top of kazoo (nothing else knows that)
    kazoo_client.py   how that client is made
    addresses.py  where an ensemble is, and the cluster in it, checked
    embedded.py   a ZooKeeper server as a child process, for clusters on one machine
    java.py       where its Java runtime is

Nothing here is on the way of a message: exchanges, publishers and subscribers never see it.
"""
