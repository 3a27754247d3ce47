"""Signs requests to AWS (Signature Version 4), fetches one object of S3, and becomes it. User data carries this file.

A booting instance has Python and no file of Spotkeep. The agent signs its requests with this code, too.

Sources: "Create a signed AWS API request" (IAM user guide). "Retrieve security credentials from instance metadata"
(EC2).
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import http.client
import io
import json
import os
import runpy
import shutil
import ssl
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from typing import NamedTuple, Optional
from urllib.parse import quote, urlsplit

METADATA_ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_METADATA_ENDPOINT = "http://169.254.169.254"
_METADATA_SECONDS = 2
_TIMEOUT_SECONDS = 20
_ATTEMPTS = 8
_MOST_BYTES = 2**26
_EXIT_FAILED = 3
_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - where to ask for one
_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"


class Credentials(NamedTuple):
    """The keys that sign requests. `expires_at` is in seconds since the epoch, None for never."""

    access_key: str
    secret_key: str
    token: Optional[str] = None  # noqa: UP045 - evaluated, by Python 3.9 too
    expires_at: Optional[float] = None  # noqa: UP045


class FetchError(Exception):
    """Something could not be fetched."""


def signed_headers(
    *,
    method: str,
    url: str,
    region: str,
    service: str,
    headers: Mapping[str, str],
    body: bytes,
    credentials: Credentials,
    at: float,
) -> dict[str, str]:
    """Return the headers of a request with its signature.

    Args:
        method: HTTP method.
        url: Percent-encoded, with its query's names in order.
        region: For example `us-east-1`.
        service: Its signing name, such as `ec2`, `s3`, `dynamodb`, `logs` or `sts`.
        headers: All headers to sign. `host` is added.
        body: Request body.
        credentials: The keys that sign the request.
        at: The time, in seconds since the epoch.
    """
    parts = urlsplit(url)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    body_hash = hashlib.sha256(body).hexdigest()
    signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed.update({"host": parts.netloc, "x-amz-date": stamp})
    if service == "s3":
        signed["x-amz-content-sha256"] = body_hash
    if credentials.token:
        signed["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        [
            method,
            parts.path or "/",
            parts.query,
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            body_hash,
        ]
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + credentials.secret_key.encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    )
    return signed


def find_credentials(environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of the environment, or those of the instance's role.

    Raises:
        FetchError: If there are none.
    """
    access_key, secret_key = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if access_key and secret_key:
        return Credentials(access_key, secret_key, environment.get("AWS_SESSION_TOKEN"))
    root = (environment.get(METADATA_ENDPOINT_VARIABLE) or _METADATA_ENDPOINT).rstrip("/")
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "300", "Content-Length": "0"}
    token = _metadata(root, "PUT", _TOKEN_PATH, ttl)
    headers = {"X-aws-ec2-metadata-token": token}
    role = _metadata(root, "GET", _ROLE_PATH, headers).split("\n")[0].strip()
    try:
        return read_credentials(json.loads(_metadata(root, "GET", _ROLE_PATH + role, headers)))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FetchError(f"the credentials of role {role!r} cannot be read from the metadata: {error!r}") from error


def read_credentials(found: Mapping[str, str]) -> Credentials:
    """Read credentials as the metadata service writes them.

    Raises:
        ValueError, KeyError, TypeError: If they are not written so.
    """
    expires_at = calendar.timegm(time.strptime(found["Expiration"], "%Y-%m-%dT%H:%M:%SZ"))
    key, secret, token = parts = found["AccessKeyId"], found["SecretAccessKey"], found["Token"]
    if not all(str.isascii(part) and str.isprintable(part) for part in parts):
        raise ValueError("no header may hold them")
    return Credentials(key, secret, token, float(expires_at))


def object_url(bucket: str, key: str, *, region: str, environment: Mapping[str, str]) -> str:
    """Return the address of an object, or of a bucket when the key is empty."""
    path = quote(key, safe="/-_.~")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint:
        return f"{endpoint.rstrip('/')}/{bucket}/{path}"
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    if "." in bucket:  # a certificate has one star
        return f"https://s3.{region}.{domain}/{bucket}/{path}"
    return f"https://{bucket}.s3.{region}.{domain}/{path}"


def send(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes,
    timeout_s: float,
) -> tuple[int, dict[str, str], bytes]:
    """Send one request, without proxies and redirects. Gives status, headers (lower case) and body.

    Raises:
        OSError: If network or server fail, or the answer has no length or more than 64 MiB.
    """
    parts = urlsplit(url)
    if parts.scheme == "https":
        tls = ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.netloc, timeout=timeout_s, context=tls
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
    try:
        connection.request(
            method, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, dict(headers)
        )
        answer = connection.getresponse()
        if answer.length is None or answer.length > _MOST_BYTES:
            raise OSError(f"{url} answers {answer.length} bytes, not at most {_MOST_BYTES}")
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"{url}: {error!r}") from error
    finally:
        connection.close()


def fetch(uri: str, *, sha256: str, region: str, environment: Mapping[str, str]) -> bytes:
    """Fetch an object and check that it is the one meant.

    Args:
        uri: `s3://bucket/key`.
        sha256: Its hash, hexadecimal.
        region: Its bucket's.
        environment: May set endpoint and credentials.

    Raises:
        FetchError: If it cannot be had after several attempts, or is another one.
    """
    bucket, _, key = uri[len("s3://") :].partition("/")
    url = object_url(bucket, key, region=region, environment=environment)
    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(min(0.5 * 2**attempt, 10))
        try:
            # A role's credentials may take a moment to appear after the boot.
            headers = signed_headers(
                method="GET",
                url=url,
                region=region,
                service="s3",
                headers={},
                body=b"",
                credentials=find_credentials(environment),
                at=time.time(),
            )
            status, _, content = send("GET", url, headers=headers, body=b"", timeout_s=_TIMEOUT_SECONDS)
        except (OSError, FetchError) as error:
            problem = str(error)
            continue
        if status == 200:
            found = hashlib.sha256(content).hexdigest()
            if found != sha256:
                raise FetchError(f"{uri} is not what was deployed: its SHA-256 is {found}, not {sha256}")
            return content
        problem = f"status {status}: {content[:300].decode('utf-8', 'replace')}"
    raise FetchError(f"{uri} cannot be fetched: {problem}")


def _metadata(root: str, method: str, path: str, headers: Mapping[str, str]) -> str:
    try:
        status, _, body = send(method, root + path, headers=headers, body=b"", timeout_s=_METADATA_SECONDS)
    except (OSError, ValueError) as error:
        raise FetchError(f"the metadata service does not answer: {error}") from error
    if status != 200:
        raise FetchError(f"the metadata service answered {status} to {path}; does the instance have a role?")
    return body.decode("utf-8", "replace")


def unpack(content: bytes, folder: str) -> None:
    """Unpack the agent. Python keeps compiled modules of files, but not of an archive.

    Args:
        content: A zipapp.
        folder: The target. It is there whole or not at all.
    """
    draft = folder + ".draft"
    shutil.rmtree(draft, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(draft)
    os.replace(draft, folder)  # noqa: PTH105 - no import for one line


def tell(line: str) -> None:
    """Say it on the console, too, which can be read when nothing else can."""
    print(line, file=sys.stderr, flush=True)
    if os.path.exists("/run/systemd/system"):  # noqa: PTH110 - there, what a service prints is in the journal only
        try:
            with open("/dev/console", "w") as console:  # noqa: PTH123
                print(line, file=console)
        except OSError as error:
            print(f"spotkeep-boot: the console cannot be written: {error}", file=sys.stderr)


def _main(arguments: list[str]) -> None:
    uri, sha256, region, folder = arguments
    if not os.path.isdir(folder):  # noqa: PTH112
        try:
            content = fetch(uri, sha256=sha256, region=region, environment=os.environ)
        except FetchError as error:
            tell(f"spotkeep: {error}")
            sys.exit(_EXIT_FAILED)  # Not again here: the next instance tries, and the functions count them.
        unpack(content, folder)
        # Beside the wait for the volume: the training may not write there, and would compile at each of its starts.
        subprocess.Popen([sys.executable, "-ISm", "compileall", "-q", os.path.join(folder, "spotkeep")])  # noqa: PTH118
    sys.argv = [folder, "agent"]
    runpy.run_path(folder, run_name="__main__")


if __name__ == "__main__":
    _main(sys.argv[1:])
