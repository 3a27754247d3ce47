"""A drill on a real run.

AWS takes the run's instance away on purpose. The drill follows and judges the recovery. `recovery` decides from
observations, and calls no AWS. `on_aws` starts the experiment and describes it.
"""
