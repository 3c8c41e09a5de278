"""Pipeline parallelism: schedules, and what the two ends of a pipeline share."""
