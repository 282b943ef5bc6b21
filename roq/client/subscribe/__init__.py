"""The subscriber: readers of logs and the merge are pure, the shell has the sockets."""
