"""What each axis of one layout divides, replicates and sends."""
