"""What of a job's request AWS Batch has no room for: a file that the job's runner reads. Pure.

AWS Batch takes a request of 10 KiB. SageMaker takes 100 environment variables of 512 bytes and 100 hyperparameters of
2,500 characters. So variables, and hyperparameters if need be, move to an object of the run, which an input channel
of the job names. The job's runner reads it before anything else (`spotkeep.runner.parameters_file`). Variables may be
secrets: the role of jobs finds no such object whose content it does not know.

Source: https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitServiceJob.html (serviceRequestPayload)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spotkeep_jobs.backends.batch.service_job import MAX_PAYLOAD_BYTES, MAX_SUBMISSION_BYTES, as_json, payload_of
from spotkeep_jobs.backends.sagemaker.request import LAUNCH_MARKS, input_channel

PARAMETERS_CHANNEL: Final = "spotkeep-parameters"
_ROOM_BYTES: Final = 64
"""The request of a run's next job is the same with greater numbers: they may be longer by some digits."""
_ROOM_OF_A_SUBMISSION_BYTES: Final = 1_024
"""For the names of the job, its queue and share, its token, and how a failed training job is retried."""


@dataclass(frozen=True, kw_only=True)
class ParametersFile:
    """What a job reads beside its request.

    Attributes:
        uri: Its `s3://` address. Its content's hash is part of it: the same content is the same object.
        content: `{"environment": {...}, "hyperparameters": {...}}` in JSON.
    """

    uri: str
    content: bytes


def fits(request: Mapping[str, Any]) -> bool:
    """Say whether AWS Batch takes a request with its tags, and that of each job that may follow it."""
    payload = payload_of(request)
    # As boto3 writes it: letters outside ASCII take six bytes each.
    whole = json.dumps([payload, request.get("Tags", ())])
    return (
        len(payload.encode()) <= MAX_PAYLOAD_BYTES - _ROOM_BYTES
        and len(whole) <= MAX_SUBMISSION_BYTES - _ROOM_OF_A_SUBMISSION_BYTES
    )


def with_parameters_file(
    request: Mapping[str, Any], *, parameters_uri: str
) -> tuple[dict[str, Any], ParametersFile | None]:
    """Return a request as it is submitted, and the file that holds what it has no room for; None where it has room.

    The marks of the launch stay: the service job is known by them. Hyperparameters stay where that is enough, because
    SageMaker shows them.

    Args:
        request: The CreateTrainingJob request of a job that runs Spotkeep's runner.
        parameters_uri: Where such files of the run are, with a closing slash.

    Returns:
        A request that may still be too long (`fits`): not all of it can move.
    """
    short, file = dict(request), None
    for moves_hyperparameters in (False, True):
        if fits(short):
            break
        short, file = _moved(request, hyperparameters=moves_hyperparameters, parameters_uri=parameters_uri)
    return short, file


def sizes_of(request: Mapping[str, Any]) -> str:
    """Return the largest parts of a request with their sizes, in words."""
    sizes = sorted(((len(as_json(part).encode()), name) for name, part in request.items()), reverse=True)
    return ", ".join(f"{name} {size:,}" for size, name in sizes[:3])


def _moved(
    request: Mapping[str, Any], *, hyperparameters: bool, parameters_uri: str
) -> tuple[dict[str, Any], ParametersFile]:
    environment = request["Environment"]
    moved = {
        "environment": {name: value for name, value in environment.items() if name not in LAUNCH_MARKS},
        "hyperparameters": request["HyperParameters"] if hyperparameters else {},
    }
    content = json.dumps(moved, sort_keys=True, separators=(",", ":")).encode()
    uri = f"{parameters_uri}{hashlib.sha256(content).hexdigest()}.json"
    short = {
        **request,
        "Environment": {name: environment[name] for name in LAUNCH_MARKS},
        "HyperParameters": {} if hyperparameters else request["HyperParameters"],
        "InputDataConfig": [*request.get("InputDataConfig", ()), input_channel(PARAMETERS_CHANNEL, uri)],
    }
    return short, ParametersFile(uri=uri, content=content)
