"""The rules that every synth holds its templates to: cdk-nag's AwsSolutions and the CDK's template validation."""

from __future__ import annotations

from aws_cdk import IPolicyValidationPlugin


def load_rules() -> list[IPolicyValidationPlugin]:
    """Load both judges, which takes longer than it takes them to judge.

    The rules that the CDK adds of its own are left out: they are about GameLift alone. The validation engine's rules,
    those of cfn-lint and of the resource schemas, are all there.
    """
    # Importing it has the CDK's Node process load all of its packs. The engine is built after that, while Python places
    # constructs: until then this machine's second core is Node's.
    from cdk_nag import AwsSolutionsChecks

    from stacks.template_validation import TemplateValidation

    return [TemplateValidation(), AwsSolutionsChecks()]
