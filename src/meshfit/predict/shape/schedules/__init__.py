"""Pipeline schedules as programs: what every rank runs, in which order."""
