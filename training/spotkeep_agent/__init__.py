"""The agent beside the training on an EC2 instance, for volume, notice and supervision. Standard library only.

The parts, from the started one down to those that it uses:

    agent.py        one instance from boot to end
    training/       the training process, its checkpoints' second tier, its logs
    nodes/          several instances that train together, without a volume: leader, worlds, connections
    volume/         the volume protocol, a pure state machine, and the executor of its actions
    aws/            the few calls to AWS, signed by hand, without SDK or AWS CLI
    settings.py, identity.py, errors.py
"""
