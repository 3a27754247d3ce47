"""Warm pools: what they are, which job takes which, their schedules, and what users do with them."""
