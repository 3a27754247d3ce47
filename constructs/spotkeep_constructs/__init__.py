"""Spotkeep's CDK constructs, a module a subject. Each construct can stand in a stack on its own."""
