"""Spotkeep in a notebook or a pipeline: launch runs and sweeps, wait for them, read what they measure.

```python
from spotkeep_client import Spotkeep

run = Spotkeep().launch("job.yaml")
run.wait()
run.metrics()["validation_loss"].plot()
```
"""

from spotkeep_cli.errors import (
    CommandLineError,
    NoConnectionError,
    RefusedError,
    RunFailedError,
    RunNotFoundError,
    RunStoppedError,
    UsageError,
)
from spotkeep_client.client import Spotkeep
from spotkeep_client.run import Measurement, Run
from spotkeep_client.sweep import Sweep

__all__ = [
    "CommandLineError",
    "Measurement",
    "NoConnectionError",
    "RefusedError",
    "Run",
    "RunFailedError",
    "RunNotFoundError",
    "RunStoppedError",
    "Spotkeep",
    "Sweep",
    "UsageError",
]
