"""The client of what only a local AWS has: scripted capacity, faulty events, and what really happened to a job."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from spotkeep_local.capacity import CapacityScript, EventFaults
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.training.facts import JobFacts

_TIMEOUT_SECONDS = 30.0


class ControlError(LocalAwsError):
    """The local AWS refused a request, or is not there."""


class LocalControl:
    """Talks to the control plane of a local AWS.

    Args:
        endpoint_url: Of the local AWS, for example `http://127.0.0.1:4566`.
    """

    def __init__(self, endpoint_url: str) -> None:
        self._endpoint_url = endpoint_url
        # A proxy in the environment has no business between this machine and itself.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def script_capacity(self, *, run: str, script: CapacityScript) -> list[str]:
        """Puts a run's capacity under a script.

        It applies at once to the live training jobs named `<run>` or `<run>-<number>`; when there is none, to the
        next one, and to no other after that. A script replaces what is left of an earlier one.

        Args:
            run: The run, or a training job's whole name.
            script: What happens to its capacity.

        Returns:
            The live training jobs it applies to; empty when it waits for the next one.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        answer = self._call("ScriptCapacity", {"run": run, "script": script.to_document()})
        return list(answer["training_jobs"])

    def event_faults(self, faults: EventFaults) -> None:
        """What goes wrong with state-change events from now on; `EventFaults()` ends all faults.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._call("EventFaults", faults.to_document())

    def warm_pool_quota(self, instances: int) -> None:
        """How many instances may be in warm pools from now on; 0, as in a new AWS account, keeps none.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._call("WarmPoolQuota", {"instances": instances})

    def job_facts(self, job_name: str) -> JobFacts:
        """What really happened to a training job's processes.

        Raises:
            ControlError: There is no such job, or no local AWS.
        """
        return JobFacts.from_document(self._call("JobFacts", {"job_name": job_name}))

    def _call(self, operation: str, document: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the endpoint is the caller's own
            self._endpoint_url,
            data=json.dumps(document).encode(),
            headers={
                "Content-Type": "application/x-amz-json-1.1",
                "X-Amz-Target": f"SpotkeepLocal.{operation}",
            },
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                body: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ControlError(f"the local AWS refused {operation}: {_message(error.read())}") from error
        except OSError as error:
            raise ControlError(
                f"no local AWS answers at {self._endpoint_url} ({error}); start one with `spotkeep local up`"
            ) from error
        return body


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
