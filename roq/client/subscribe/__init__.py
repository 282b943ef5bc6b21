"""The subscriber: readers of logs and the resequencer are pure, the shell has the sockets."""
