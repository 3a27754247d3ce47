"""Spotkeep in a notebook or a pipeline, to launch runs and sweeps, to wait for them and to read their metrics.

```python
from spotkeep_client import Spotkeep

run = Spotkeep().launch("job.yaml")
run.wait()
run.metrics()["validation_loss"].plot()
```
"""

from spotkeep_cli.extras import install_command, missing_extra

try:
    from spotkeep_cli.errors import (
        CommandLineError,
        NoConnectionError,
        RefusedError,
        RunFailedError,
        RunNotFoundError,
        RunStoppedError,
        UsageError,
    )
    from spotkeep_client.client import Measurement, RunHandle, Spotkeep, SweepHandle
except ImportError as error:
    if missing_extra(error) is None:
        raise
    raise ImportError(f"{error.name} is not installed. Add the extra 'cli': {install_command('cli')}") from error

__all__ = [
    "CommandLineError",
    "Measurement",
    "NoConnectionError",
    "RefusedError",
    "RunFailedError",
    "RunHandle",
    "RunNotFoundError",
    "RunStoppedError",
    "Spotkeep",
    "SweepHandle",
    "UsageError",
]
