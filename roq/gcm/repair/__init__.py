"""What a leader does unasked, so that queues are what their definitions say."""
