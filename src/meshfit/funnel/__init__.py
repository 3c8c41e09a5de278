"""The funnel: from a job to ranked layouts (plan), one verdict (check) and a proven winner (fit)."""
