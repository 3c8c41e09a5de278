"""The legal layouts of a job, what predictions of them rest on, and their ranking."""
