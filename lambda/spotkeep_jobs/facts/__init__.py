"""What is known: the records of runs, attempts and pools, and what SageMaker, a log and a price list say."""
