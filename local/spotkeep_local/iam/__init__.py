"""Who may do what: AWS's rules for permissions, applied to every request before it takes effect.

`calls` reads a request into the operation and its parameters. `authorizations` says which actions on which resources
the operation asks for. `evaluation` decides about each by the policies of the caller and of the resource. `reference`
holds what AWS documents about actions, resource types and condition keys. What is not in it is denied. All of these are
pure. `judge` finds the caller's policies, asks the others, and answers a denial as AWS does.

Source: "Policy evaluation logic" in the IAM user guide.
"""
