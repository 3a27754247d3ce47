"""What a run costs and may cost: AWS's prices, the bill of an attempt, the limits on spending."""
