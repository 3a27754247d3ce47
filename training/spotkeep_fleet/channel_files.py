"""The file of a channel that each object of S3 becomes, by SageMaker's rule. EC2 and the local SageMaker follow it.

A channel has all objects with its prefix at the beginning of their keys. Below the folder that the prefix names, a file
has the rest of its key as its path. Where the prefix is the beginning of longer names, a file has its whole name. With
the prefix `data/train`, `data/train-1.csv` is the file `train-1.csv`, and `data/train/a.csv` is `a.csv`. An empty
object with a slash at the end of its key is a folder to consoles, and no file.

S3 takes almost any key, a file system does not. An object that cannot be a file raises an error that names the keys.
Otherwise a job would train without it, or with one object in the place of another.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html
    https://github.com/aws/sagemaker-python-sdk/issues/3612 (SageMaker's names for the files of a partial prefix)
    https://github.com/aws-samples/generative-ai-on-amazon-sagemaker/pull/242 (SageMaker refuses two slashes in a row)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from .errors import ChannelDataError

_LONGEST_NAME_BYTES = 255
"""The longest name of a file or a folder on ext4, XFS and APFS."""
_MOST_PROBLEMS = 5
_SHOWN_CHARACTERS = 160


class _StoredObject(Protocol):
    """An object as a listing shows it."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def size(self) -> int:
        """Its size in bytes."""


_Object = TypeVar("_Object", bound=_StoredObject)


def channel_files(objects: Iterable[_Object], *, bucket: str, prefix: str) -> list[tuple[_Object, str]]:
    """Return each object of a channel with the path of its file, relative to the channel's folder.

    Args:
        objects: All objects with the prefix at the beginning of their keys, in any order.
        bucket: The name of their bucket.
        prefix: The prefix of the channel. Empty for the whole bucket.

    Raises:
        ChannelDataError: If there is no object, or some cannot be files. Names them.
    """
    files: list[tuple[_Object, str]] = []
    keys: dict[str, str] = {}  # of files, by path
    folders: dict[str, str] = {}  # a key below each folder, by the folder's path
    problems: list[str] = []

    for found in objects:
        key = found.key
        if key.endswith("/") and not found.size:
            continue
        path = file_path(key, prefix=prefix)
        problem = _problem(key, path)
        if problem is not None:
            problems.append(f"{_shown(key)} {problem}")
            continue
        if path in keys:
            problems.append(f"{_shown(keys[path])} and {_shown(key)} would both be the file {_shown(path)}")
            continue
        below = folders.get(path)
        above = path.rpartition("/")[0]
        while above and above not in folders:
            folders[above] = key
            below = keys.get(above, below)
            above = above.rpartition("/")[0]
        if below is not None:
            first, second = sorted((below, key), key=len)
            problems.append(
                f"{_shown(first)} cannot be a file beside {_shown(second)}, which needs a folder of that name"
            )
            continue
        keys[path] = key
        files.append((found, path))
    address = f"s3://{bucket}/{_shown(prefix)}"
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        listed = [*problems[:_MOST_PROBLEMS], *([f"and {more:,} more"] if more > 0 else [])]
        raise ChannelDataError(
            f"not all objects of {address} can be files: {'; '.join(listed)}. Rename them, or put the data "
            "of the job under a prefix of its own"
        )
    if not files:
        raise ChannelDataError(
            f"{address} holds no data: no key begins with it, or only folders do. Correct the channel's address, "
            "or put the data there"
        )
    return files


def file_path(key: str, *, prefix: str) -> str:
    """Return the path that an object's file has in the folder of its channel.

    Args:
        key: The key of the object.
        prefix: The channel's prefix, which is a folder, a whole key, or the beginning of several.
    """
    folder = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    if key.startswith(folder):
        return key[len(folder) :]
    return key[prefix.rfind("/") + 1 :]


def has_an_empty_name(key: str) -> bool:
    """Return True if a key, or its beginning, has an empty name between two slashes. SageMaker copies no such object.

    Args:
        key: The key, without its bucket.
    """
    return key.startswith("/") or "//" in key


def _problem(key: str, path: str) -> str | None:
    """Return the reason for which a key cannot be a file. None where it can."""
    if has_an_empty_name(key):
        return "has an empty name between two slashes, which SageMaker refuses"
    parts = path.split("/")
    if not parts[-1]:
        return "ends with a slash, as a folder does, and is not empty"
    if any(part in (".", "..") for part in parts):
        return "has `.` or `..` for a name"
    if "\0" in key:
        return "holds the character NUL"
    if any(len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME_BYTES for part in parts):
        return f"has a name of more than {_LONGEST_NAME_BYTES} bytes, the most that a file system takes"
    return None


def _shown(key: str) -> str:
    """Write a key so that it fits into a message, without control characters."""
    text = key if key.isprintable() else repr(key)[1:-1]
    half = _SHOWN_CHARACTERS // 2
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:half]}...{text[-half:]}"
