"""The services on which an attempt runs (SageMaker or EC2 fleets), behind one interface. A `JobView` is a job."""
