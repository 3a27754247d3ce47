"""What every function reads from its environment, as the infrastructure sets it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, Json

from spotkeep_jobs.aws.run_table import DEFAULT_RETENTION_DAYS

_PREFIX: Final = "SPOTKEEP_"


class FunctionSettings(BaseModel):
    """Each field is the environment variable `SPOTKEEP_<FIELD>`; an empty variable counts as unset."""

    model_config = ConfigDict(frozen=True)

    deployment: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,19}$")]
    run_table: str
    run_retention_days: Annotated[int, Field(gt=0)] = DEFAULT_RETENTION_DAYS
    prices: Json[dict[str, float]] = Field(default_factory=dict)
    """On-demand US dollars per hour of an instance, by type."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the settings.

        Raises:
            pydantic.ValidationError: A variable is missing or wrong; it names each.
        """
        given: dict[str, Any] = {
            name: environment[_PREFIX + name.upper()]
            for name in cls.model_fields
            if environment.get(_PREFIX + name.upper())
        }
        return cls.model_validate(given)
