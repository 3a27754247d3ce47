"""One MLflow run through all jobs of a run. A tag finds it on the tracking server, so nothing is kept here."""

from __future__ import annotations

import hashlib
import os
from typing import Any

try:
    import mlflow
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.mlflow needs MLflow: install 'mlflow-skinny>=3' ({error})") from error

RUN_TAG = "spotkeep.run"
"""The tag of an MLflow run that names the run it measures."""
HYPERPARAMETERS_TAG = "spotkeep.hyperparameters"
"""The tag of an MLflow run with a digest of the hyperparameters of its jobs."""


def start_run(**arguments: Any) -> mlflow.ActiveRun:
    """Begin the MLflow run of this run, or go on with the one that an earlier job began.

    ```python
    with spotkeep.integrations.mlflow.start_run():
        mlflow.log_metric("loss", loss, step=step)
    ```

    A parameter of an MLflow run never changes. MLflow raises when it is logged with another value. After an earlier job
    has logged parameters, a job with other hyperparameters gets an MLflow run of its own below the first.

    Outside of a job of Spotkeep it is `mlflow.start_run`.

    Args:
        **arguments: Those of `mlflow.start_run` for a run that begins, such as `tags=`, `run_name=`, `experiment_id=`.

    Raises:
        RuntimeError: A rank other than 0 called it. Each rank would begin a run of its own.
        mlflow.exceptions.MlflowException: The tracking server refused or cannot be reached.
    """
    rank = os.environ.get("RANK", "0")
    if rank != "0":
        raise RuntimeError(f"this is rank {rank}, and the MLflow run is that of rank 0: call start_run there alone")
    run = os.environ.get("SPOTKEEP_RUN")
    if not run:
        return mlflow.start_run(**arguments)
    # Without experiments MLflow searches in the one that it would begin the run in.
    experiment = arguments.get("experiment_id")
    found = mlflow.search_runs(
        experiment_ids=None if experiment is None else [experiment],
        filter_string=f"tags.`{RUN_TAG}` = '{run}'",
        order_by=["attributes.start_time DESC"],
        output_format="list",
    )
    digest = hashlib.sha256(os.environ.get("SM_HPS", "").encode()).hexdigest()
    own = {RUN_TAG: run, HYPERPARAMETERS_TAG: digest}
    for earlier in found:
        if not earlier.data.params or earlier.data.tags.get(HYPERPARAMETERS_TAG, digest) == digest:
            return mlflow.start_run(run_id=earlier.info.run_id, tags=own)
    tags = {**(arguments.pop("tags", None) or {}), **own}
    parent = {"parent_run_id": found[-1].info.run_id} if found else {}
    return mlflow.start_run(**{"run_name": run, **parent, **arguments, "tags": tags})
