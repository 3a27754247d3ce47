"""The rules that every synth holds its templates to: cdk-nag's AwsSolutions and the CDK's template validation."""

from __future__ import annotations

from aws_cdk import CloudFormationValidatePlugin, IPolicyValidationPlugin


def load_rules() -> list[IPolicyValidationPlugin]:
    """Load both judges into the CDK's Node process, which takes longer than it takes them to judge.

    The rules that the CDK adds of its own are left out: they are about GameLift alone, and they need an engine of their
    own. The validation engine's rules, those of cfn-lint and of the resource schemas, are all there.
    """
    # Importing it loads all of its packs.
    from cdk_nag import AwsSolutionsChecks

    return [CloudFormationValidatePlugin(include_default_rules=False), AwsSolutionsChecks()]
