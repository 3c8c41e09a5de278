"""Real runs of a smaller job on fewer nodes, and what they say of the whole one."""
