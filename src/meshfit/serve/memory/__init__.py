"""What one replica holds: shards of every tensor, the KV cache, memory by category."""
