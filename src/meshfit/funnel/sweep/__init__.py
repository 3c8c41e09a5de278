"""Real runs of a shortlist: what is run, in which folder, and what it concludes."""
