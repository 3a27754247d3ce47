"""Warm pools, with the matching of jobs to pools, their schedules, and the users' actions on them."""
