"""What the launcher had no room for in the request of a job in a queue: variables and hyperparameters, in a file.

AWS Batch takes a request of 10 KiB. The launcher puts the rest into an object, which an input channel of the job names.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

from spotkeep.errors import ConfigurationError

from .layout import JobLayout


def take_over_parameters(layout: JobLayout, environment: MutableMapping[str, str]) -> None:
    """Put them where the platform puts those of other jobs; does nothing in a job that has no such file.

    Args:
        layout: Where the file is, and where hyperparameters belong.
        environment: This process's; the variables are added.

    Raises:
        ConfigurationError: There is not one file, or it is not what the launcher writes.
    """
    if not layout.parameters.is_dir():
        return
    found = sorted(layout.parameters.glob("*.json"))
    if len(found) != 1:
        raise ConfigurationError(f"{layout.parameters} holds {len(found)} files of parameters; the launcher puts one")
    try:
        document: Any = json.loads(found[0].read_bytes())
        variables, hyperparameters = dict(document["environment"]), dict(document["hyperparameters"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"the file of parameters cannot be read: {found[0]}: {error!r}") from error
    environment.update(variables)
    if hyperparameters:
        _write_hyperparameters(layout, hyperparameters)


def _write_hyperparameters(layout: JobLayout, hyperparameters: dict[str, str]) -> None:
    try:
        layout.configuration.mkdir(parents=True, exist_ok=True)
        layout.hyperparameters.write_text(json.dumps(hyperparameters), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the hyperparameters cannot be written to {layout.hyperparameters}, where scripts read them: {error}"
        ) from error
