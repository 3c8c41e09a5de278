"""Real servers on this machine: what starts them, and seeing that they end."""
