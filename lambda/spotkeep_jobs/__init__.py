"""What Spotkeep's functions share. Data flows one way, and the folders are its stations.

    document   what a user asks for, parsed at the edge into types
    facts      what the record holds, and what AWS says of a job: types without behaviour of their own
    decisions  what follows from a document and the facts; pure, and most of what there is to know about Spotkeep
    aws        the seams to DynamoDB, SageMaker, Scheduler, SNS and CloudWatch Logs: the modules that call boto3
    actions    one thing done from beginning to end: launch, follow, reconcile, send
    functions  how a Lambda function is put together from all of it

Three capabilities keep theirs together, each with its own facts, decisions and seam: `fleets` (EC2), `prices`,
`orphans`. The import contracts in pyproject.toml hold the arrows: each folder knows those above it in this list, and
no decision knows boto3.
"""
