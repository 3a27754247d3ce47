"""The cost of a run, with AWS's prices, the bill of an attempt, and the limits on spending."""
