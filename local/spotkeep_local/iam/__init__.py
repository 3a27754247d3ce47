"""AWS's rules for permissions, applied to every request before it takes effect.

`calls` reads a request into the operation and its parameters. `authorizations` lists the actions and resources that the
operation needs permission for. `evaluation` decides about each by the policies of the caller and of the resource.
`reference` holds AWS's documentation of actions, resource types and condition keys. An action, type or key outside it
is denied. All of these are pure. `judge` finds the caller's policies, asks the others, and answers a denial as AWS
does.

Source: "Policy evaluation logic" in the IAM user guide.
"""
