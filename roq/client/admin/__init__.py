"""Management commands, and what the cluster tells about itself."""
