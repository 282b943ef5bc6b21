"""The global configuration manager (GCM): definitions, placement, public interfaces.

    clients, host managers --BSON--> ROUTER client port      (P)      \\
    consoles, roq CLI      --BSON--> ROUTER management port  (P + 3)   > machine --> host managers
    everybody              <--BSON-- XPUB   broadcast port   (P + 5)  /         \\-> registry

`machine` decides and is made of nouns: `client_port` and `management_port` (who asks), `role`
(who leads), `queues`, `hosts` and their `reports`, `rules`, `operations` (which runs the `sagas`),
`views` (what is told), `records` (what is written down), `events` (what goes in and out).
`daemon` owns the sockets, `definitions` the registry, `listeners` the PUSH sockets.
Several managers may run; one leads.
"""
