"""SageMaker's MLflow as IAM sees it: what a job needs to log its run to a tracking server or an app.

A tracking server asks for an action of each call of MLflow's REST API: here are those that begin a run, find it again,
log metrics, parameters and tags. None deletes. An app asks for one action, whatever is called.

Sources: "Set up IAM permissions for MLflow" (SageMaker developer guide); "Actions, resources, and condition keys for
Amazon SageMaker with MLflow" (service authorization reference).
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import aws_iam as iam

from spotkeep_constructs.statements import allow

LOGGING = (
    "sagemaker-mlflow:CreateExperiment",
    "sagemaker-mlflow:CreateRun",
    "sagemaker-mlflow:GetExperimentByName",
    "sagemaker-mlflow:GetRun",
    "sagemaker-mlflow:LogBatch",
    "sagemaker-mlflow:LogMetric",
    "sagemaker-mlflow:LogParam",
    "sagemaker-mlflow:SearchRuns",
    "sagemaker-mlflow:SetTag",
    "sagemaker-mlflow:UpdateRun",
)
_ANY_CALL = "sagemaker:CallMlflowAppApi"


def allow_logging(grantee: iam.IGrantable, *, arns: Sequence[str]) -> None:
    """Let a job log to tracking servers and apps.

    Args:
        grantee: The role that jobs run with.
        arns: Theirs.
    """
    apps = [arn for arn in arns if ":mlflow-app/" in arn]
    servers = [arn for arn in arns if arn not in apps]
    if servers:
        allow(grantee, actions=LOGGING, resources=servers)
    if apps:
        allow(grantee, actions=[_ANY_CALL], resources=apps)
