"""A local AWS: ministack plus what it lacks, as one daemon that lives in one directory.

`lifecycle` starts, finds and stops it; `cdk` deploys to it with the real CDK command line; `server` is the
daemon itself.
"""
