"""Changes of definitions: commands, step by step, and how many at once."""
