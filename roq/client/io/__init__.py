"""The I/O thread of a client, and what other threads share with it."""
