"""AWS Fault Injection Service, as far as a drill needs it: spot instances of the local EC2 are told, and taken away.

A request comes in at `service`, is read by `rest_protocol`, and becomes a template or an experiment (`records`).
`rules` refuses what cannot be carried out; `service` finds the instances an experiment means and leads it on.
"""
