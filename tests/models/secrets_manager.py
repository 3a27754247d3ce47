"""AWS Secrets Manager in memory, spelled as boto3's client, and with a door for clients that sign by hand."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from botocore.exceptions import ClientError

from tests.models.faults import Called, Model, client_error

ARN_PREFIX: Final = "arn:aws:secretsmanager:us-east-1:123456789012:secret:"
_METHODS: Final = {"GetSecretValue": "get_secret_value", "DescribeSecret": "describe_secret"}


@dataclass
class ModelSecret:
    """A secret.

    Attributes:
        name: Its name.
        value: Its text, or bytes for binary data.
        key: The KMS key that its owner named. None for the account's own.
        deleted: True once it is scheduled for deletion.
        denied: True where a policy denies its value to all.
    """

    name: str
    value: str | bytes
    key: str | None = None
    deleted: bool = False
    denied: bool = False

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"{ARN_PREFIX}{self.name}-Ab12Cd"


class SecretsManager(Model):
    """The secrets of one account and region.

    Attributes:
        secrets: By name.
        throttled: How many calls are still refused as too many.
        broken: How many calls still end in an error of the service's own.
        read: How often each value was read, by name.
    """

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.secrets: dict[str, ModelSecret] = {}
        self.throttled = self.broken = 0
        self.read: Counter[str] = Counter()

    def put(self, name: str, value: str | bytes, **fields: Any) -> ModelSecret:
        """Make a secret, or rotate its value."""
        self.secrets[name] = ModelSecret(name, value, **fields)
        return self.secrets[name]

    def describe_secret(self, *, SecretId: str) -> Any:  # noqa: N803 - boto3's name
        return self._call("DescribeSecret", lambda: self._described(SecretId))

    def get_secret_value(self, *, SecretId: str) -> Any:  # noqa: N803
        return self._call("GetSecretValue", lambda: self._value(SecretId))

    def _described(self, secret_id: str) -> dict[str, Any]:
        found = self._found("DescribeSecret", secret_id)
        return {
            "ARN": found.arn,
            "Name": found.name,
            **({"KmsKeyId": found.key} if found.key else {}),
            **({"DeletedDate": datetime(2026, 11, 29, tzinfo=UTC)} if found.deleted else {}),
        }

    def _value(self, secret_id: str) -> dict[str, Any]:
        found = self._found("GetSecretValue", secret_id)
        if found.denied:
            raise client_error("GetSecretValue", "AccessDeniedException", f"not authorized on {found.arn}")
        if found.deleted:
            problem = "You can't perform this operation on the secret because it was marked for deletion."
            raise client_error("GetSecretValue", "InvalidRequestException", problem)
        self.read[found.name] += 1
        field = "SecretString" if isinstance(found.value, str) else "SecretBinary"
        value = found.value if isinstance(found.value, str) else found.value.hex()
        return {"ARN": found.arn, "Name": found.name, field: value}

    def _found(self, operation: str, secret_id: str) -> ModelSecret:
        if self.throttled:
            self.throttled -= 1
            raise client_error(operation, "ThrottlingException", "Rate exceeded")
        if self.broken:
            self.broken -= 1
            raise client_error(operation, "InternalServiceError", "try again")
        for secret in self.secrets.values():
            if secret_id in (secret.name, secret.arn):
                return secret
        raise client_error(operation, "ResourceNotFoundException", "Secrets Manager can't find the specified secret.")

    @contextlib.contextmanager
    def served(self, *, key_id: str = "AKIAOFTHEJOB", credentials: dict[str, str] | None = None) -> Iterator[str]:
        """Serve the API on a loopback address, which it yields.

        Args:
            key_id: The access key that requests must be signed with.
            credentials: The answer to `/credentials`, as the endpoint of a container gives it. None for none.
        """
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/credentials" and credentials is not None
                self._answer(200 if found else 404, credentials if found else {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                operation = self.headers["x-amz-target"].partition(".")[2]
                scope = rf"Credential={key_id}/[0-9]{{8}}/us-east-1/secretsmanager/aws4_request,"
                if not re.search(scope, self.headers["authorization"]):
                    self._answer(400, {"__type": "UnrecognizedClientException", "message": "another key"})
                    return
                try:
                    answer = getattr(model, _METHODS[operation])(**body)
                except ClientError as error:
                    found = error.response["Error"]
                    status = 500 if found["Code"] == "InternalServiceError" else 400
                    self._answer(status, {"__type": found["Code"], "message": found["Message"]})
                else:
                    self._answer(200, answer)

            def _answer(self, status: int, document: Any) -> None:
                raw = json.dumps(document, default=str).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
