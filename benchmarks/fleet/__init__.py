"""Measures recoveries on EC2 instances with ``make bench-fleet``.

`recoveries.py` takes instances away, `__main__.py` judges. `tests/models/fleet_site.py` is a deployment as an agent
sees it.
"""
