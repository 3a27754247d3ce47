"""What every function reads from its environment, as the infrastructure sets it, and from the file beside its code.

Lambda's environment has 4,096 bytes in all: what a team may make long lies with the code, under the same names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, Json

from spotkeep_jobs.document.spending_limits import NO_LIMITS, SpendingLimits
from spotkeep_jobs.record.table_client import DEFAULT_RETENTION_DAYS

_PREFIX: Final = "SPOTKEEP_"
_BUNDLE: Final = r"^s3://[^/]+/.+\.pyz$"
_PACKED: Final = Path(__file__).parents[2] / "variables.json"


class FunctionSettings(BaseModel):
    """Each field is the variable `SPOTKEEP_<FIELD>`, of environment or file; an empty one counts as unset."""

    model_config = ConfigDict(frozen=True)

    deployment: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,19}$")]
    run_table: str
    training_bundle_uri: Annotated[str, Field(pattern=_BUNDLE)]
    """Where jobs and instances fetch `spotkeep.pyz`."""
    training_bundle_asset_uri: Annotated[str, Field(pattern=_BUNDLE)]
    """What `cdk deploy` uploaded, of which that is a copy."""
    run_retention_days: Annotated[int, Field(gt=0)] = DEFAULT_RETENTION_DAYS
    prices: Json[dict[str, float]] = Field(default_factory=dict)
    """On-demand US dollars per hour of an instance, by type."""
    spending_limits: Json[SpendingLimits] = NO_LIMITS

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ, *, packed: Path = _PACKED) -> Self:
        """Read the settings.

        Args:
            environment: The variables; they go before those of the file.
            packed: The file: a JSON object of variables. It need not be there.

        Raises:
            pydantic.ValidationError: A variable is missing or wrong; it names each.
        """
        variables = {**(json.loads(packed.read_bytes()) if packed.exists() else {}), **environment}
        given: dict[str, Any] = {
            name: variables[_PREFIX + name.upper()]
            for name in cls.model_fields
            if variables.get(_PREFIX + name.upper())
        }
        return cls.model_validate(given)
