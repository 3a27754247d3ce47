"""Where an attempt runs: SageMaker or an EC2 fleet, behind one seam. What they say of a job is a `JobView`."""
