"""Spotkeep's CDK constructs: one file a construct, each ready to be placed in a stack on its own."""
