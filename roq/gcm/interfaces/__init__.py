"""What others ask a configuration manager, and what it tells."""
