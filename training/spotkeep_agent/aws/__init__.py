"""The few calls to AWS that an instance makes, signed by hand.

The agent uses neither the SDK nor the AWS CLI. Images differ in which Python has boto3. One start of the CLI takes
longer than all calls of a recovery.
"""
