"""Measures what a recovery on an EC2 instance takes: ``make bench-fleet``.

`recoveries.py` takes instances away, `targets.py` judges. `tests/models/fleet_site.py` is a deployment as an agent sees
it.
"""
