"""What runs on an EC2 instance beside the training: the volume, the notice, the supervision. Standard library only.

From what is started down to what it stands on:

    agent.py        one instance from boot to goodbye
    leaving.py      how the time of a notice is divided
    training/       the training process, its checkpoints' second tier, its logs
    volume/         the volume protocol: a pure state machine, and what carries its actions out
    aws/            the few calls to AWS, signed by hand: no SDK, no command line tool
    settings.py, identity.py, errors.py
"""
