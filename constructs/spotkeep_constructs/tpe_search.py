"""The function that chooses the trials of a sweep by TPE."""

from __future__ import annotations

from aws_cdk import Duration
from constructs import Construct

from spotkeep_constructs.job_function import FunctionPlatform, JobFunction
from spotkeep_jobs.sweeps.search.tpe_request import LONGEST_CHOICE_SECONDS


class TpeSearch(Construct):
    """A function that the launcher asks. It calls nothing of AWS: all it needs is in the question.

    Attributes:
        function: The function.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        platform: FunctionPlatform,
    ) -> None:
        """Place the function.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Prefix of the function's name.
            platform: What the function has: its own layer, and the code of all.
        """
        super().__init__(scope, id)
        self.function = JobFunction(
            self,
            "Function",
            package="search",
            deployment=deployment,
            platform=platform,
            environment={},
            timeout=Duration.seconds(LONGEST_CHOICE_SECONDS),
            description="Chooses the trials of a sweep by TPE",
            # A whole processor: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
            memory_mb=1_769,
        )
