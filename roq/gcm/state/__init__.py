"""What a configuration manager knows: its role, hosts, queues, and the signs of life of both."""
