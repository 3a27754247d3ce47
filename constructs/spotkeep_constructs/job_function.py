"""The functions of a deployment, with one archive of code for all and the parts that each has.

The archive is built, uploaded and unpacked once. The name of a function's handler says which package of it runs. Each
function has a layer, a role of its own and a log that expires, and loses no event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spotkeep_constructs.acknowledgements import acknowledge
from spotkeep_constructs.archives import keep, python_sources, sha256, zip_bytes
from spotkeep_constructs.dependency_layer import RUNTIME, LambdaTarget
from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.statements import allow, allow_regional, together
from spotkeep_jobs.settings import FunctionSettings

SHARED_PACKAGE = "spotkeep_jobs"
STEERING = ("spotkeep_planner/__init__.py", "spotkeep_planner/errors.py", "spotkeep_planner/steering.py")
"""The part of the planner that steers a run. Its other parts need packages that the functions do not have."""
PACKED_VARIABLES = "variables.json"
"""The archive's file of variables that the environment has no room for, by name. Functions read both alike."""


def code_files(functions: Path, *, jobs: Path, planner: Path, training: Path) -> dict[str, bytes]:
    """Return the code of the functions, by path in the archive.

    Args:
        functions: The source root that holds a package a function.
        jobs: The source root of `SHARED_PACKAGE`.
        planner: The source root of the planner.
        training: The source root with the fleet record that the functions carry.

    Raises:
        PropertyError: The first is no such source root.
    """
    packages = [path.parent for path in sorted(functions.glob("*/handler.py"))]
    if not packages:
        raise PropertyError(
            name="FunctionCode.functions",
            problem="holds no package with a handler.py",
            found=str(functions),
            fix="Give the directory lambda/ of a checkout of Spotkeep.",
        )
    files: dict[str, bytes] = {}
    for package in (*packages, jobs / SHARED_PACKAGE, training / "spotkeep_fleet"):
        files |= python_sources(package)
    steering = python_sources(planner / "spotkeep_planner")
    return files | {name: content for name, content in steering.items() if name.startswith(STEERING)}


@dataclass(frozen=True, kw_only=True)
class FunctionCode:
    """The archive, as a synth keeps it.

    Attributes:
        archive: The path of the archive.
        digest: Its hash, and so the asset's.
        packages: The packages in it that hold a handler.
    """

    archive: Path
    digest: str
    packages: frozenset[str]

    @classmethod
    def pack(cls, files: Mapping[str, bytes], *, variables: Mapping[str, str], archives: Path) -> Self:
        """Pack it. The same files and variables give the same bytes.

        Args:
            files: Content by path in the archive.
            variables: The content of `PACKED_VARIABLES`, settings of the functions that a team may make long.
            archives: The directory that keeps built archives, one folder a hash.
        """
        packed = {PACKED_VARIABLES: json.dumps(variables, sort_keys=True).encode()}
        content = zip_bytes({**files, **packed})
        digest = sha256(content)
        return cls(
            archive=keep(archives / digest, "functions.zip", content),
            digest=digest,
            packages=frozenset(name.removesuffix("/handler.py") for name in files if name.endswith("/handler.py")),
        )

    def asset(self) -> lambda_.Code:
        """Return the code of a function."""
        return lambda_.Code.from_asset(str(self.archive), asset_hash=self.digest)


ENVIRONMENT_BYTES = 4_096
"""Lambda's limit: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html. It measures them as JSON."""
FAILURE_RETENTION_DAYS = 14
RETRY_ATTEMPTS = 2
LONGEST_RETRY = Duration.hours(6)


@dataclass(frozen=True, kw_only=True)
class FunctionPlatform:
    """The parts that all functions of a stack share.

    Attributes:
        target: The interpreter and platform that the functions are built for.
        layer: Their third-party dependencies.
        code: Their code.
        log_retention: The time for which CloudWatch keeps their logs.
    """

    target: LambdaTarget
    layer: lambda_.ILayerVersion
    code: FunctionCode
    log_retention: logs.RetentionDays


def _longest(value: Any) -> str:
    """Return a text at least as long as the value that CloudFormation will fill in.

    Its longest values are names of roles and of buckets (64 and 63 characters) and the ARNs of roles.
    """
    match value:
        case str():
            return value
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(_longest(part) for part in parts)
        case {"Ref": str(name)} if name.startswith("AWS::"):
            return "x" * 16
        case {"Fn::Select": [_, {"Fn::GetAZs": _}]}:
            return "x" * 16
        case {"Fn::GetAtt": [_, "Arn"]}:
            return "x" * 100
        case {"Fn::GetStackOutput": {"OutputName": str(name)}} if "Arn" in name:
            return "x" * 100
        case _:
            return "x" * 64


class JobFunction(Construct):
    """A Lambda function that acts on runs.

    Its role holds the granted permissions and the right to write its own log and traces. The CDK's own additions, with
    their wildcards, are left out. Events that the function or its triggers could not handle wait in a dead-letter
    queue.

    Attributes:
        function: The function.
        role: Its role, to which permissions are granted.
        failures: The dead-letter queue, of the function and of its triggers.
        timeout: The longest time that one invocation may take.
        package: The package that holds its handler.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        package: str,
        deployment: str,
        platform: FunctionPlatform,
        environment: Mapping[str, str],
        timeout: Duration,
        description: str,
        memory_mb: int = 512,
    ) -> None:
        """Place the function.

        Args:
            scope: Parent construct.
            id: Construct id.
            package: A package of the platform's code, with the handler `<package>.handler.handler`.
            deployment: Prefix of the function's name.
            platform: The code, layer and log settings that all functions of the stack share.
            environment: The function's own settings.
            timeout: The longest time that one invocation may take.
            description: The function's description in the console.
            memory_mb: Memory in MiB, which also sets the share of a processor.

        Raises:
            PropertyError: The package is missing, or the environment is longer than Lambda takes.
        """
        super().__init__(scope, id)
        if package not in platform.code.packages:
            raise PropertyError(
                name="JobFunction.package",
                problem="is no package with a handler",
                found=package,
                fix=f"Name one of {', '.join(sorted(platform.code.packages))}.",
            )
        self.package = package
        self.timeout = timeout
        self._name = name = f"{deployment}-{package}"
        log_group = logs.LogGroup(
            self,
            "Log",
            log_group_name=f"/aws/lambda/{name}",
            retention=platform.log_retention,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.failures = sqs.Queue(
            self,
            "Failures",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(FAILURE_RETENTION_DAYS),
        )
        acknowledge(self.failures, {"SQS3": "It is the dead-letter queue of this function and its triggers."})

        self.role = self._role()
        self._variables: Mapping[str, str] = {}
        variables = self._with_room_for(
            {
                **FunctionSettings.variables(deployment=deployment),
                "POWERTOOLS_SERVICE_NAME": name,
                "POWERTOOLS_METRICS_NAMESPACE": "Spotkeep",
                "POWERTOOLS_LOG_LEVEL": "INFO",
                **environment,
            }
        )
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=name,
            description=description,
            runtime=RUNTIME,
            architecture=platform.target.cdk_architecture,
            handler=f"{package}.handler.handler",
            code=platform.code.asset(),
            layers=[platform.layer],
            # Without updates by the CDK: its grants for tracing and destinations hold unconditional wildcards.
            role=self.role.without_policy_updates(),
            environment=variables,
            timeout=timeout,
            memory_size=memory_mb,
            tracing=lambda_.Tracing.ACTIVE,
            log_group=log_group,
        )
        self.function.configure_async_invoke(
            retry_attempts=RETRY_ATTEMPTS,
            max_event_age=LONGEST_RETRY,
            on_failure=destinations.SqsDestination(self.failures),
        )
        acknowledge(
            self.function,
            {"L1": "Python 3.13 is maintained until 2029, and the lock has wheels of every dependency for it."},
        )

    def _role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"The function {self._name} runs with it",
        )
        log_arn = Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name=f"/aws/lambda/{self._name}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        allow(
            role,
            actions=["logs:CreateLogStream", "logs:PutLogEvents"],
            resources=[log_arn],
            wildcard="Lambda names the streams: those of this function's own log group.",
        )
        allow_regional(role, "xray:PutTelemetryRecords", "xray:PutTraceSegments")
        # What fails when it is invoked asynchronously is tried twice more by Lambda, and then waits in that queue.
        allow(role, actions=["sqs:SendMessage"], resources=[self.failures.queue_arn])
        return role

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Add to the function's environment.

        Args:
            variables: The variables by name, which may hold tokens.

        Raises:
            PropertyError: The environment is longer than Lambda takes.
        """
        for variable, value in self._with_room_for(variables).items():
            self.function.add_environment(variable, value)

    def _with_room_for(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return the additions to the function's environment, and refuse an environment longer than Lambda takes."""
        self._variables = {**self._variables, **variables}
        stack = Stack.of(self)
        measured = {key: _longest(stack.resolve(value)) for key, value in self._variables.items()}
        if (size := len(json.dumps(measured, separators=(",", ":")).encode())) > ENVIRONMENT_BYTES:
            raise PropertyError(
                name=f"JobFunction.environment of {self._name}",
                problem=f"does not fit into Lambda's {ENVIRONMENT_BYTES:,} bytes",
                found=f"{size:,} bytes, {max(measured, key=lambda key: len(measured[key]))} the longest",
                fix="Shorten what it holds (of settings: fewer teams, or shorter names), or pack it with the code.",
            )
        return variables

    def serve_at_url(self) -> lambda_.FunctionUrl:
        """Give the function a URL at which AWS authenticates requests. The event then names the caller.

        There is no CORS, so no web page reads an answer, and no resource policy, so no other account gets in.

        Source: https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html
        """
        return self.function.add_function_url(auth_type=lambda_.FunctionUrlAuthType.AWS_IAM)

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal invoke the function with any event, one that names another caller too.

        Args:
            grantee: A role, user or managed policy.
        """
        return allow(grantee, actions=["lambda:InvokeFunction"], resources=[self.function.function_arn])

    @property
    def own_arn(self) -> str:
        """Its ARN by its name, since a reference in its own role's policy or environment would make a circle."""
        return Stack.of(self).format_arn(
            service="lambda",
            resource="function",
            resource_name=self._name,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )

    def grant_invoke_itself(self) -> iam.Grant:
        """Let the function invoke itself once more, for work that an invocation leaves undone."""
        return allow(self.role, actions=["lambda:InvokeFunction"], resources=[self.own_arn])

    def grant_invoke_url(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal call the function at its URL alone. AWS writes the caller into the event.

        Args:
            grantee: A role, user or managed policy.
        """
        url = allow(
            grantee,
            actions=["lambda:InvokeFunctionUrl"],
            resources=[self.function.function_arn],
            conditions={"StringEquals": {"lambda:FunctionUrlAuthType": "AWS_IAM"}},
        )
        function = allow(
            grantee,
            actions=["lambda:InvokeFunction"],
            resources=[self.function.function_arn],
            conditions={"Bool": {"lambda:InvokedViaFunctionUrl": "true"}},
        )
        return together(url, function)
