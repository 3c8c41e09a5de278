"""What jobs start from, for the terminal: the catalogue, models, probes of clusters."""
