"""The rules that every synth checks its templates by, cdk-nag's AwsSolutions and the CDK's template validation."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import jsii
from aws_cdk import (
    IPolicyValidationContext,
    IPolicyValidationPlugin,
    PolicyValidationPluginReport,
    PolicyValidationStack,
    PolicyViolatingResource,
    PolicyViolation,
)
from cloudformation_validate import (
    CompositeEngine,
    DetailLevel,
    Diagnostic,
    EntityType,
    PseudoParameterOverrides,
    RuleFilterConfig,
    ServiceFilter,
    Severity,
    ValidateConfig,
    version,
)

# What `CloudFormationValidatePlugin` leaves out, for templates of the CDK break these and deploy.
LEFT_OUT = ("W3005", "W1020", "E1018", "W9002", "W9013", "W1103")
LEFT_OUT_OF_SERVICES = (("W3697", "AWS::AutoScaling"),)

_SEVERITY_IN_REPORT = {Severity.FATAL: "error", Severity.ERROR: "error", Severity.WARN: "warning"}


@jsii.implements(IPolicyValidationPlugin)
class TemplateValidation:
    """The findings of `CloudFormationValidatePlugin` when it has no rules beside those of its engine.

    The CDK brings the same engine in WebAssembly, which Node compiles again at every synth. That took longer than all
    else that judges. So the build of the engine for this machine judges here.
    """

    def __init__(self) -> None:
        # It takes about half a second of a core, needs neither Python nor Node, and its first template comes last.
        with_engine = ThreadPoolExecutor(max_workers=1)
        self._engine: Future[CompositeEngine] = with_engine.submit(CompositeEngine)
        with_engine.shutdown(wait=False)
        # Python ends by clearing modules, and an engine that outlives its module prints an error.
        atexit.register(vars(self).clear)

    @property
    def name(self) -> str:
        """The CDK's own name for it, which acknowledgements use."""
        return "CloudFormation Validate"

    @property
    def version(self) -> str:
        """The engine's version."""
        return version()

    @property
    def rule_ids(self) -> list[str] | None:
        """None: the CDK asks for its analytics alone, and would wait for the engine."""
        return None

    def validate(self, context: IPolicyValidationContext) -> PolicyValidationPluginReport:
        """Validate the template of each stack.

        Args:
            context: The stacks and where their templates are.

        Raises:
            cloudformation_validate.ValidationError: When the engine cannot be built. The CDK fails the synth with it.
        """
        engine = self._engine.result()
        violations = violations_of(
            (stack, diagnostic)
            for stack in context.stack_templates
            for diagnostic in engine.validate_template(stack.template_path, _config(stack)).diagnostics
        )
        return PolicyValidationPluginReport(
            success=all(violation.severity != "error" for violation in violations), violations=violations
        )


def violations_of(found: Iterable[tuple[PolicyValidationStack, Diagnostic]]) -> list[PolicyViolation]:
    """Report each rule that was broken in the same way once, with all that break it."""
    violations: dict[tuple[str, Severity, str], tuple[Diagnostic, list[PolicyViolatingResource]]] = {}
    for stack, diagnostic in found:
        path = diagnostic.property_path
        description = f"{path.removeprefix('Properties.')}: {diagnostic.message}" if path else diagnostic.message
        _, resources = violations.setdefault((diagnostic.rule_id, diagnostic.severity, description), (diagnostic, []))
        entity = diagnostic.entity
        logical_id = entity.logical_id if entity and entity.entity_type is EntityType.RESOURCE else None
        resources.append(
            PolicyViolatingResource(
                resource_logical_id=logical_id,
                construct_path=None if logical_id else stack.stack_construct_path,
                template_path=stack.template_path,
                locations=[path] if path else [],
            )
        )
    return [
        PolicyViolation(
            rule_name=rule_id,
            description=description,
            severity=_SEVERITY_IN_REPORT[severity],
            fix=first.suggested_fix,
            rule_metadata={"category": first.category} if first.category else None,
            violating_resources=resources,
        )
        for (rule_id, severity, description), (first, resources) in violations.items()
    ]


def _config(stack: PolicyValidationStack) -> ValidateConfig:
    return ValidateConfig(
        detail_level=DetailLevel.STANDARD,
        severity_level=Severity.WARN,
        exclude=RuleFilterConfig(
            ids=list(LEFT_OUT),
            services=[ServiceFilter(rule_id=rule_id, service=service) for rule_id, service in LEFT_OUT_OF_SERVICES],
        ),
        pseudo_parameter_overrides=PseudoParameterOverrides(account_id=stack.account_id, region=stack.region),
    )


def load_rules() -> list[IPolicyValidationPlugin]:
    """Load both sets of rules, which takes longer than the checks.

    The rules that the CDK adds of its own are left out, as they are about GameLift alone. All rules of the validation
    engine remain, those of cfn-lint and of the resource schemas.
    """
    # Importing it has the CDK's Node process load all of its packs. The engine is built after that, while Python places
    # constructs: until then this machine's second core is Node's.
    from cdk_nag import AwsSolutionsChecks

    return [TemplateValidation(), AwsSolutionsChecks()]
