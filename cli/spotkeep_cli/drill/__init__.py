"""A drill on a real run: its instance is taken away on purpose, and its recovery is followed and judged.

`recovery` decides from what is seen, and knows no AWS. `on_aws` starts the experiment and describes it.
"""
