"""What Spotkeep's functions share: the request, the run record, the decisions, and the adapters that act on AWS.

Data flows one way: a document is parsed at the edge into types (`request`, `validation`, `job_events`), pure
functions decide (`training_job_request`, `tracking`, `cost`, `notices`), and thin adapters act (`sagemaker_api`,
`run_table`, ...). Only the adapters call boto3.
"""
