"""ministack's Lambda, with callers, credentials, archives and invocations of functions."""

from __future__ import annotations

import hashlib
import inspect
import shutil
import threading
import zipfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ministack.core import lambda_runtime as _lambda_runtime  # type: ignore[import-untyped]
from ministack.core import router as _router
from ministack.services import lambda_svc as _lambda_svc  # type: ignore[import-untyped]

from spotkeep_local.principals import AccessKey, ServiceCall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FUNCTION_URL_PATH = "/_aws/lambda-url/"
"""The path before a function URL's id in ministack, which works without DNS, by the address alone."""


def name_callers_of_function_urls(find: Callable[[str], AccessKey | None]) -> None:
    """Add the caller to events of function URLs with AuthType AWS_IAM, as AWS does.

    Args:
        find: Returns the key with an id. None for a key that was not issued, in which case the event names no caller.
    """
    build = _lambda_svc._build_function_url_event

    def build_with_caller(*arguments: Any, **further: Any) -> dict[str, Any]:
        given = inspect.signature(build).bind(*arguments, **further)
        given.apply_defaults()
        event: dict[str, Any] = build(*arguments, **further)
        if not given.arguments["anonymous"]:
            key = find(_router.extract_access_key_id(given.arguments["headers"], given.arguments["query_params"]))
            if key is not None:
                caller = {
                    "accessKey": key.access_key_id,
                    "accountId": key.principal.account_id,
                    "callerId": key.principal.user_id,
                    "userArn": key.principal.arn,
                    "userId": key.principal.user_id,
                }
                nothing = {"cognitoIdentity": None, "principalOrgId": None}
                event["requestContext"] |= {"authentication": None, "authorizer": {"iam": {**nothing, **caller}}}
        return event

    _lambda_svc._build_function_url_event = build_with_caller


def save_layers_as_files() -> None:
    """Save the archives of layers as files, as ministack saves those of functions.

    ministack writes them into its state as text, once for each layer that has the same archive. For one deployment that
    is 87 MB. They take two seconds to write at the end, and one to read at each start.
    """
    get_state, load_persisted_state = _lambda_svc.get_state, _lambda_svc.load_persisted_state

    def get_state_without_archives() -> dict[str, Any]:
        state: dict[str, Any] = get_state()
        for version in _layer_versions(state):
            code = {"code_zip": version["_zip_data"]}
            _lambda_svc._externalize_code_zip(code, set())
            version["_zip_data"] = code["code_zip"]
        return state

    def load_state_and_archives(state: dict[str, Any]) -> None:
        archives: dict[str, bytes | None] = {}
        for version in _layer_versions(state):
            code = {"code_zip": version["_zip_data"]}
            _lambda_svc._internalize_code_zip(code, archives)
            version["_zip_data"] = code["code_zip"]
        load_persisted_state(state)

    _lambda_svc.get_state, _lambda_svc.load_persisted_state = get_state_without_archives, load_state_and_archives


def _layer_versions(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for layer in state["layers"]._data.values():
        yield from layer["versions"]


def give_functions_credentials(credentials_of: Callable[[str, str, str], dict[str, str]]) -> None:
    """Set the credentials in the environment of functions.

    Args:
        credentials_of: Takes a function's ARN, its name and its role's ARN. Returns environment variables.
    """

    def execution_credentials(config: Mapping[str, Any]) -> dict[str, str]:
        return credentials_of(config["FunctionArn"], config["FunctionName"], config.get("Role", ""))

    # Both modules call it by a name of their own.
    _lambda_runtime.execution_credentials = _lambda_svc.execution_credentials = execution_credentials


def unpack_once(archives: UnpackedArchives) -> None:
    """Let the processes of a function share the unpacked files of its archive and its layers.

    Args:
        archives: The place where they are unpacked.
    """

    @contextmanager
    def linked_archive(file: str) -> Iterator[SimpleNamespace]:
        # Of each name in a layer ministack asks whether it leaves the directory: half a second of processor time for
        # 1,800 of them. It is given none: zipfile, which unpacks them here, lets none leave it.
        yield SimpleNamespace(namelist=list, extractall=lambda directory: archives.link(Path(file), Path(directory)))

    _lambda_runtime.zipfile = SimpleNamespace(
        ZipFile=linked_archive, BadZipFile=zipfile.BadZipFile, LargeFileError=zipfile.LargeZipFile
    )


def end_invocations(function: str) -> int:
    """Kill the process of each invocation of a function that is under way, as when its machine dies.

    Args:
        function: The function's name.

    Returns:
        How many there were.
    """
    with _lambda_runtime._lock:
        processes = [
            worker._proc
            for workers in _lambda_runtime._workers.values()
            for worker in workers
            if worker.func_name == function and worker.in_use and worker._proc is not None
        ]
    at_work = [process for process in processes if process.poll() is None]
    for process in at_work:
        process.kill()
    return len(at_work)


def judge_calls_of_functions(is_allowed: Callable[[ServiceCall], bool]) -> None:
    """Make Lambda ask before it reads a queue or writes a log in the role of a function.

    Args:
        is_allowed: Decides.
    """
    run_batch, emit_logs = _lambda_svc._run_sqs_batch, _lambda_svc._emit_lambda_logs
    reading = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")

    def run_allowed_batch(esm: Mapping[str, Any], function: Mapping[str, Any], *batch: Any) -> None:
        config = function["config"]
        call = ServiceCall(
            service="lambda.amazonaws.com",
            actions=reading,
            resource=esm["EventSourceArn"],
            source_arn=config["FunctionArn"],
            role_arn=config["Role"],
        )
        if is_allowed(call):
            run_batch(esm, function, *batch)

    def emit_allowed_logs(function: Mapping[str, Any], *lines: Any, **more: Any) -> Any:
        config = function["config"]
        _arn, _aws, _lambda, region, account, *_function = config["FunctionArn"].split(":")
        group = (config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}"
        stream = f"arn:aws:logs:{region}:{account}:log-group:{group}:log-stream:any"
        call = ServiceCall(
            service="lambda.amazonaws.com",
            actions=("logs:CreateLogStream", "logs:PutLogEvents"),
            resource=stream,
            source_arn=config["FunctionArn"],
            role_arn=config["Role"],
        )
        return emit_logs(function, *lines, **more) if is_allowed(call) else None

    _lambda_svc._run_sqs_batch, _lambda_svc._emit_lambda_logs = run_allowed_batch, emit_allowed_logs


def function_url(url_id: str) -> tuple[str, str] | None:
    """Return the function's ARN, with its alias, and the AuthType of a function URL. None where there is none."""
    found = _lambda_svc.resolve_function_url(url_id)
    if found is None:
        return None
    _account, _region, _name, qualifier, config = found
    return config["FunctionArn"] + (f":{qualifier}" if qualifier else ""), config["AuthType"]


class UnpackedArchives:
    """The archives that are unpacked so far.

    Args:
        directory: Their directory. It need not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._unpacking = threading.Lock()
        self._used: set[Path] = set()

    def link(self, archive: Path, target: Path) -> None:
        """Put links to an archive's entries into a directory.

        Args:
            archive: A ZIP archive.
            target: An existing, empty directory.

        Raises:
            OSError: The disk refuses.
            zipfile.BadZipFile: It is no such archive.
        """
        for entry in self._unpacked(archive).iterdir():
            (target / entry.name).symlink_to(entry)

    def remove_unused(self) -> None:
        """Remove archives that an earlier server unpacked and that no function has used since.

        They belong to functions that have changed.
        """
        for place in self._directory.glob("*"):
            if place not in self._used:
                shutil.rmtree(place, ignore_errors=True)

    def _unpacked(self, archive: Path) -> Path:
        place = self._directory / hashlib.sha256(archive.read_bytes()).hexdigest()
        with self._unpacking:
            if not place.exists():
                whole_later = place.with_suffix(".part")
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(whole_later)
                whole_later.rename(place)
            self._used.add(place)
        return place
