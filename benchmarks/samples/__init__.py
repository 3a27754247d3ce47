"""Published training scripts, rehearsed as they are and once more with their resume broken.

``make bench-samples SAMPLES='nanogpt --broken'`` or ``python -m benchmarks.samples [ROW ...] [--broken]``. No line of
the scripts is here. Each row of the table names the repository and commit, and the data are made.
"""
