"""The global configuration manager (GCM): definitions, placement, public interfaces.

    clients, host managers --BSON--> ROUTER client port      (P)      \\
    consoles, roq CLI      --BSON--> ROUTER management port  (P + 3)   > machine --> host managers
    everybody              <--BSON-- XPUB   broadcast port   (P + 5)  /         \\-> registry

`machine` decides; `events` are what goes in and out; `daemon` owns the sockets. The rooms:

    state/        what is known: role, hosts, queues, heartbeats, losses; records are written down
    change/       commands: sagas, which `operations` runs, and how much may happen at once
    provision/    hosts that a provider makes
    repair/       what the leader does unasked: what is lost, and hosts that are drained
    interfaces/   who asks what, and what is told
    persistence/  definitions in ZooKeeper or a file

Several managers may run; one leads.
"""
