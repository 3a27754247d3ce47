"""The rules that every synth checks its templates by, cdk-nag's AwsSolutions and the CDK's template validation."""

from __future__ import annotations

from aws_cdk import IPolicyValidationPlugin


def load_rules() -> list[IPolicyValidationPlugin]:
    """Load both sets of rules, which takes longer than the checks.

    The rules that the CDK adds of its own are left out, as they are about GameLift alone. All rules of the validation
    engine remain, those of cfn-lint and of the resource schemas.
    """
    # Importing it has the CDK's Node process load all of its packs. The engine is built after that, while Python places
    # constructs: until then this machine's second core is Node's.
    from cdk_nag import AwsSolutionsChecks

    from spotkeep_stacks.template_validation import TemplateValidation

    return [TemplateValidation(), AwsSolutionsChecks()]
