"""The few calls to AWS that an instance makes, signed by hand.

Neither the SDK nor the command line is used: which Python of an image has boto3 is anybody's guess, and one start of
the command line takes longer than a whole recovery needs for its calls.
"""
