"""Jobs handed to a cluster's own scheduler."""
