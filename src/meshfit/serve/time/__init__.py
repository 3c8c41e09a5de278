"""How long one step of a replica takes: operations, the device under an engine, the clock."""
