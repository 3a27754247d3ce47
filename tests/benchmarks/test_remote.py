"""The measurement of transfers: the server counts what clients ask of it, and the short form runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from benchmarks.remote.__main__ import Server
from benchmarks.report import PROJECT


@pytest.fixture
def server(tmp_path: Path):
    (tmp_path / "read").mkdir()
    (tmp_path / "read" / "object").write_bytes(bytes(range(256)) * 100)
    server = Server(tmp_path)
    yield server
    server.close()


def test_the_server_takes_uploads_and_gives_files(server: Server, tmp_path: Path) -> None:
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=server.url,
        region_name="eu-central-1",
        aws_access_key_id="benchmark",
        aws_secret_access_key="benchmark",
        config=Config(retries={"max_attempts": 1}),
    )
    server.figures()
    raw = (tmp_path / "read" / "object").read_bytes()
    assert client.get_object(Bucket="bench", Key="read/object")["Body"].read() == raw
    assert client.get_object(Bucket="bench", Key="read/object", Range="bytes=10-19")["Body"].read() == raw[10:20]
    upload = client.create_multipart_upload(Bucket="bench", Key="written/a")["UploadId"]
    part = client.upload_part(Bucket="bench", Key="written/a", UploadId=upload, PartNumber=1, Body=bytes(6 * 2**20))
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(Bucket="bench", Key="written/a", UploadId=upload, MultipartUpload=parts)
    client.put_object(Bucket="bench", Key="written/b", Body=b"x" * 70_000)
    assert client.head_object(Bucket="bench", Key="written/a")["ContentLength"] == 6 * 2**20
    listed = client.list_objects_v2(Bucket="bench", Prefix="written/")["Contents"]
    assert {found["Key"]: found["Size"] for found in listed} == {"written/a": 6 * 2**20, "written/b": 70_000}
    figures = server.figures()
    assert figures["bytes"] == 6 * 2**20 + 70_000
    assert figures["requests"] == {
        "GetObject": 2,
        "CreateMultipartUpload": 1,
        "UploadPart": 1,
        "CompleteMultipartUpload": 1,
        "PutObject": 1,
        "HeadObject": 1,
        "ListObjects": 1,
    }
    assert server.figures()["requests"] == {}, "counted since the call before"


@pytest.mark.long
def test_the_short_form_measures_ours_and_the_sdk(tmp_path: Path) -> None:
    output = tmp_path / "remote.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.remote",
        "--quick",
        "--output",
        str(output),
        "--directory",
        str(tmp_path),
    ]
    subprocess.run([*command, "--only", "spotkeep", "boto3 transfer manager"], cwd=PROJECT, check=True, timeout=200)
    document = json.loads(output.read_text())
    for name in ("spotkeep", "boto3 transfer manager"):
        for direction in ("upload", "download"):
            (figure,) = document["clients"][name][direction]
            assert figure["processor_s"] > 0
            assert figure["requests"] > 3
        assert sum(document["files"]) == document["clients"][name]["upload"][0]["sent_bytes"]
