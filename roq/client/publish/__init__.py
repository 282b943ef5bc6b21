"""The publisher: machine, send windows and links are pure, the shell has the sockets."""
