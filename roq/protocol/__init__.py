"""The wire: every codec, document and limit that crosses a process boundary. Pure.

`batch` is the binary format of what publishers send and readers get; `channel` the messages around
it on the sockets of an exchange; `documents` the BSON that everything else is made of; `public` the
management commands that existing tools speak; `control` the messages between our own processes.

Decoding raises `RemoteProtocolError` and nothing else, whatever the bytes are.
"""
