"""Measures what a recovery on an EC2 instance takes: ``make bench-fleet``.

`site.py` has a deployment as far as an agent sees it, `recoveries.py` takes instances away, `targets.py` judges.
"""
