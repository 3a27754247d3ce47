"""AWS Fault Injection Service, as far as `spotkeep drill` needs it, with experiments that interrupt spot instances.

`service` keeps templates and runs experiments. `rules` refuses templates that cannot be carried out here.
`cloudformation` makes templates for `AWS::FIS::ExperimentTemplate`. ministack has no FIS.
"""
