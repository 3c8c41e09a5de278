"""Terminal views of what is said before anything runs: plans, one layout, what explains it."""
