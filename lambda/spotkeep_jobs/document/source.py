"""The code and the data of a job, and the part of them that its role may read.

The launcher judges as IAM does, before anything is paid. The roles of both backends have the same permissions here.
They read `runs/` and `sources/` of the deployment's bucket and the setting `data_locations`. They write checkpoints
below `runs/<run>/checkpoints/`. The role of an isolated team has `teams/<team>/runs/` and `teams/<team>/sources/` in
their place. SageMaker lists a channel by the prefix that its URI names, and reads every object that it finds. IAM
compares the prefix of the listing with the policy's names, letter by letter. It compares the key of each object in the
same way. s3://data/cifar10/ grants neither s3://data/cifar100/ nor s3://data/cifar10, since that lists both.

Not known here are the policy of the data's bucket or of its KMS key, a permissions boundary, and a policy of AWS
Organizations. They may deny an address that is accepted here. An address that a bucket policy alone allows is refused.

Sources:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/amazon-s3-policy-keys.html (s3:prefix)

    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html (S3Prefix)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag

from spotkeep_fleet.channel_files import has_an_empty_name
from spotkeep_fleet.training_spec import SPEC_CHANNEL
from spotkeep_jobs.document.reading import (
    MAX_RUN_ID_LENGTH,
    MAX_WORD,
    S3_SCHEMA,
    AnyText,
    DocumentModel,
    Rule,
    S3Uri,
    SecretText,
    Text,
    excluded,
    first_few,
    more_than_fit,
    must,
    read_s3_uri,
    read_text,
    rule,
    shown,
    single_line,
    without_credentials,
    written,
    wrong,
)
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


MAX_REQUIREMENTS: Final = 40
_ARCHIVES: Final = (".tar.gz", ".tgz", ".zip")
RESERVED_CHANNELS: Final = ("spotkeep", "source", SPEC_CHANNEL)


def read_source(value: object) -> object:
    """Return the place of the code, from a mapping of an archive or a git repository, or from an archive's URI.

    A URI alone holds the hash (`<sha256>.tar.gz`), as `spotkeep launch` uploads it. Nothing else that S3 offers pins an
    archive. Its checksum is SHA-256 only where the uploader asked for it, and SageMaker's channels know no versions.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html
    """
    if isinstance(value, Mapping | BaseModel):
        return value
    if not isinstance(value, str):
        raise wrong(
            "is neither an archive nor a git repository",
            "Give {uri: s3://<bucket>/<key>.tar.gz, sha256: <64 hex digits>}, or {git: <url>, commit: <40 hex digits>}",
        )
    if not value.startswith("s3://"):
        if re.match(r"(https?|ssh|git)://|git@", value):
            raise wrong("is a URL without a commit", f"Write {{git: {value[:80]}, commit: <40 hex digits>}}")
        raise wrong(
            "is not an S3 URI: the launcher cannot see your files",
            "Upload an archive and name it as s3://<bucket>/<sha256>.tar.gz (`spotkeep launch` does so for a folder)",
        )
    uri = read_archive_uri(value)
    named = re.search(r"/([0-9a-f]{64})\.[a-z.]+$", uri)
    if named is None:
        raise wrong(
            "does not say which archive is meant: what lies there may be replaced after the launch",
            f"Write {{uri: {uri[:200]}, sha256: <64 hex digits>}}; `aws s3 cp {uri[:200]} - | sha256sum` gives them",
        )
    return {"uri": uri, "sha256": named[1]}


def read_archive_uri(value: object) -> str:
    """Return the S3 URI of an archive."""
    uri = read_s3_uri(value)
    if not uri.endswith(_ARCHIVES):
        raise wrong("is not an archive Spotkeep can unpack", f"Use one that ends in {', '.join(_ARCHIVES)}")
    return uri


GitUrl = Annotated[
    Text,
    Field(max_length=512),
    without_credentials("Remove it; name the secret that holds a token as source.secret"),
    must(
        re.compile(r"(https://|ssh://)[^\s/-][^\s]*/[^\s]+|git@[\w.-]+:[^\s]+").fullmatch,
        "is not the URL of a git repository",
        "Give it as https://<host>/<path>.git",
    ),
]


def read_install(value: object) -> str | list[str]:
    """Return the packages to install, as auto, none, a path in the source, or a list of requirements."""
    if isinstance(value, str):
        path = PurePosixPath(read_text(value))
        if not value or path.is_absolute() or ".." in path.parts or value.startswith("-") or path == PurePosixPath():
            raise wrong("is no path inside the source", "Give auto, none, requirements/train.txt, or a list")
        return single_line(value, longest=MAX_WORD, what="the source")
    if not isinstance(value, list | tuple):
        raise wrong(
            "is neither text nor a list", "Give auto, none, the path of a requirements file, or a list: [timm==1.0.9]"
        )
    if not value:
        raise wrong("is an empty list", "Write none to install nothing, or leave it out")
    if len(value) > MAX_REQUIREMENTS:
        raise wrong(
            f"has {len(value)} requirements; {MAX_REQUIREMENTS} fit", "Put them into requirements.txt in the source"
        )
    listed = [single_line(read_text(each), longest=MAX_WORD, what="the job file") for each in value]
    if any(not each.strip() or each.startswith("-") for each in listed):
        raise wrong(
            "holds an option of pip, or a requirement that is empty",
            "Options go into requirements.txt in the source; list requirements alone: [timm==1.0.9]",
        )
    return listed


def read_prefix(value: object) -> str:
    """Return an S3 URI of checkpoints, which ends with a slash."""
    text = read_s3_uri(value)
    bucket, _, key = text.removeprefix("s3://").partition("/")
    parts = key.strip("/").split("/")
    if not all(parts):
        problem = "names a whole bucket" if not key.strip("/") else "holds an empty path segment"
        raise wrong(problem, "Give it as s3://<bucket>/<folder>/, one slash between folders")
    if {".", ".."} & set(parts):
        raise wrong("holds a . or .. segment, which S3 does not resolve", "Write the folder's full path")
    normal = f"s3://{bucket}/{'/'.join(parts)}/"
    if len(normal) > 1_024:
        raise wrong(f"has {len(normal)} characters with its closing slash; SageMaker takes 1,024", "Shorten it")
    return normal


class GitSource(DocumentModel):
    """Source code in a git repository, pinned to one commit."""

    git: GitUrl = Field(examples=["https://github.com/example/training.git"])
    """The repository's URL, https or ssh, without credentials."""
    commit: Text = Field(examples=["0f4b7c1d2e3a49586776859403a2b1c0d9e8f7a6"], pattern="^[0-9a-f]{40}$")
    """The full commit id: 40 hex digits (`git rev-parse HEAD`). A branch moves, a commit does not."""
    secret: SecretText | None = Field(default=None, examples=["github-token"])
    """The secret with a token for a private repository, or `<user>:<token>`, by its name or ARN, like those of secrets.
    Its submodules on the same host are fetched with it, too. Default: none, the job needs no token."""


class ArchiveSource(DocumentModel):
    """Source code in an archive in S3, pinned by the hash of its bytes."""

    uri: Annotated[str, BeforeValidator(read_archive_uri), S3_SCHEMA] = Field(examples=["s3://my-code/train.tar.gz"])
    """The archive: .tar.gz, .tgz or .zip."""
    sha256: Text = Field(
        examples=["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"], pattern="^[0-9a-f]{64}$"
    )
    """The SHA-256 of its bytes: 64 hex digits, in small letters (`sha256sum <file>`). If another archive is there when
    a job starts, it is not unpacked, and the job fails."""


def _source_meant(source: object) -> str:
    """Say as which of the two a mapping is judged."""
    if isinstance(source, BaseModel):
        return type(source).__name__
    archive = isinstance(source, Mapping) and not {"uri", "sha256"}.isdisjoint(source) and "git" not in source
    return "ArchiveSource" if archive else "GitSource"


Source = Annotated[
    Annotated[ArchiveSource, Tag("ArchiveSource")] | Annotated[GitSource, Tag("GitSource")],
    Discriminator(_source_meant),
]
ChannelName = Annotated[
    AnyText,
    must(
        lambda text: text not in RESERVED_CHANNELS,
        "is a channel Spotkeep itself uses",
        f"Rename the channel; reserved: {', '.join(RESERVED_CHANNELS)}",
    ),
    must(
        written(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
        "is not a channel name: 1 to 64 letters, digits, dots, hyphens and underscores, a letter or digit first",
        "Rename the channel, for example train",
    ),
]


_LONGEST_DIRECTORY: Final = 4_096
FileSystemId = Annotated[Text, Field(pattern=r"^fs-[0-9a-f]{8,18}$")]


def read_directory(value: object) -> str:
    """Return the path of a directory of a file system, without a closing slash."""
    text = read_text(value)
    if len(text) > _LONGEST_DIRECTORY:
        raise wrong(f"has {len(text)} characters; SageMaker takes {_LONGEST_DIRECTORY:,}", "Shorten it")
    if not text.isprintable():
        raise wrong("holds a line break or another character that cannot be printed", "Write it in one line")
    if not text.startswith("/"):
        raise wrong("does not begin with a slash", f"Write /{text[:200]}")
    parts = text.removesuffix("/").split("/")[1:]
    if {"", ".", ".."} & set(parts):
        raise wrong("holds an empty, a . or a .. segment", "Write the directory's full path, one slash between folders")
    return "/" + "/".join(parts)


def read_channels(value: object) -> object:
    """Turn a mapping of names into the list that SageMaker has. Its values are URIs or channels without a name."""
    if isinstance(value, Mapping):
        for name, spec in value.items():
            if isinstance(spec, Mapping) and "name" in spec:
                raise wrong(f"names channel {str(name)[:64]!r} twice", "Leave `name` out: the key is the name")
        return [
            {"name": name, **spec} if isinstance(spec, Mapping) else {"name": name, "uri": spec}
            for name, spec in value.items()
        ]
    if isinstance(value, list | tuple):
        return list(value)
    raise wrong("is neither a mapping nor a list", "Write train: s3://<bucket>/<prefix>, one line a channel")


class ChannelData(DocumentModel):
    """Where a channel's data is and how the job reads it."""

    uri: S3Uri = Field(examples=["s3://my-data/cifar10/"])
    """The S3 prefix (or object) to read."""
    input_mode: Literal["File", "FastFile", "Pipe"] = "File"
    """File copies before the start, FastFile streams on read, Pipe gives a FIFO."""
    content_type: Text | None = Field(default=None, examples=["text/csv"], max_length=256, pattern="^[ -~]+$")
    """What the objects are, for algorithms that ask: text/csv, text/libsvm. Default: none, the algorithm's own."""


class Channel(ChannelData):
    """Data for the job: an S3 prefix that appears under `/opt/ml/input/data/<name>`."""

    name: ChannelName = Field(examples=["train"])
    """The channel's name, at most 64 characters. `spotkeep`, `spotkeep-spec` and `source` are taken."""


class FileSystemData(DocumentModel):
    """A directory of a file system that the job mounts."""

    fsx: FileSystemId | None = Field(default=None, examples=["fs-0123456789abcdef0"])
    """The id of a file system of FSx for Lustre."""
    efs: FileSystemId | None = Field(default=None, examples=["fs-0123456789abcdef0"])
    """The id of a file system of Amazon EFS."""
    path: Annotated[str, BeforeValidator(read_directory, json_schema_input_type=str)] = Field(
        examples=["/fsx/cifar10"], min_length=1
    )
    """The directory: a full path. With fsx it begins with the file system's mount name: `/<mount name>/<folder>`."""
    access: Literal["ro", "rw"] = "ro"
    """ro: the job reads. rw: it may write, and an interruption undoes nothing of that."""
    input_mode: Literal["File", "FastFile", "Pipe"] = "File"
    """File. A mounted file is read when it is needed, and nothing is copied before the start."""
    content_type: Text | None = Field(default=None, examples=["text/csv"], max_length=256, pattern="^[ -~]+$")
    """What the files are, for algorithms that ask: text/csv, text/libsvm. Default: none, the algorithm's own."""

    @property
    def file_system(self) -> str:
        """The id of the file system."""
        return self.fsx or self.efs or ""

    @property
    def mount_name(self) -> str:
        """The first folder of the path, which names a file system of FSx for Lustre. Empty for the root."""
        return self.path.split("/")[1]


class FileSystemChannel(FileSystemData):
    """Data for the job: a directory of a file system that appears under `/opt/ml/input/data/<name>`."""

    name: ChannelName = Field(examples=["train"])
    """The channel's name, at most 64 characters. `spotkeep`, `spotkeep-spec` and `source` are taken."""


def _channel_meant(channel: object) -> str:
    """Say as which of the two a mapping is judged."""
    if isinstance(channel, BaseModel):
        return type(channel).__name__
    names = frozenset(channel) if isinstance(channel, Mapping) else frozenset()
    mounted = names & {"fsx", "efs"} or ("uri" not in names and names & {"path", "access"})
    return "FileSystemChannel" if mounted else "Channel"


AnyChannel = Annotated[
    Annotated[Channel, Tag("Channel")] | Annotated[FileSystemChannel, Tag("FileSystemChannel")],
    Discriminator(_channel_meant),
]

_MAX_CHANNELS: Final = 20


@rule("channels", "command", "source")
def _channels_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    names = [channel.name for channel in request.channels]
    for name in sorted({name for name in names if names.count(name) > 1}) if len(names) <= _MAX_CHANNELS else ():
        yield Problem(
            field="channels", found=shown(name), problem="is the name of more than one channel", fix="Rename one."
        )
    own = 0 if request.command is None else 3 if isinstance(request.source, ArchiveSource) else 2
    fix = "Put data under a common prefix and use one channel for it."
    yield from more_than_fit("channels", request.channels, limit=_MAX_CHANNELS, own=own, fix=fix)


@rule("channels", "source", "backend")
def _keys_can_be_files(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield the addresses of which SageMaker refuses all keys once the job has begun (`spotkeep_fleet.channel_files`).

    An instance of EC2 fetches its source by the key itself.
    """
    copied = {f"channels.{each.name}.uri": each.uri for each in request.s3_channels if each.input_mode == "File"}
    if isinstance(request.source, ArchiveSource) and request.backend != "ec2":
        copied = {"source": request.source.uri, **copied}
    for field, uri in copied.items():
        key = uri.removeprefix("s3://").partition("/")[2]
        if has_an_empty_name(key):
            yield Problem(
                field=field,
                found=shown(uri),
                problem="holds two slashes in a row; SageMaker copies no object with such a key",
                fix="Write one slash between folders, and copy the objects there if their keys have two.",
            )


@rule("channels", "backend")
def _file_systems_can_be_mounted(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield the reasons that need no answer of AWS's. `backends.file_system_checks` has the others."""
    for channel in request.file_system_channels:
        place = f"channels.{channel.name}"
        kind = "fsx" if channel.fsx is not None else "efs"
        if (channel.fsx is None) == (channel.efs is None):
            yield Problem(
                field=place,
                found="fsx and efs" if channel.fsx is not None else "neither fsx nor efs",
                problem="is one file system, of FSx for Lustre or of Amazon EFS",
                fix="Give one of the two.",
            )
            continue
        if channel.input_mode != "File":
            yield Problem(
                field=f"{place}.input_mode",
                found=channel.input_mode,
                problem="is for objects in S3, and a file system is mounted: its files are read when they are needed",
                fix="Leave it out.",
            )
        if channel.fsx is not None and not channel.mount_name:
            yield Problem(
                field=f"{place}.path",
                found=shown(channel.path),
                problem="does not begin with the mount name of the file system",
                fix="Write /<mount name>/<folder>: aws fsx describe-file-systems --file-system-ids "
                f"{channel.fsx} --query 'FileSystems[].LustreConfiguration.MountName'",
            )
        if defaults.file_systems is not None and channel.file_system not in defaults.file_systems:
            yield Problem(
                field=f"{place}.{kind}",
                found=shown(channel.file_system),
                problem="is not among the file systems that jobs may mount: "
                f"{first_few(defaults.file_systems) or 'the deployment has none'}",
                fix=f"Name {channel.file_system} in the deployment's setting file_systems, and deploy again.",
            )
        if request.backend == "sagemaker" and defaults.training_network is False:
            yield Problem(
                field=f"{place}.{kind}",
                found=shown(channel.file_system),
                problem="is in a VPC, and this deployment's training jobs are in none",
                fix="Deploy with training_subnet_ids, subnets of the VPC of the file system, and "
                "training_security_group_ids.",
            )


@rule("install", "source")
def _requirements_file_needs_a_source(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if isinstance(request.install, str) and request.install not in ("auto", "none") and request.source is None:
        yield Problem(
            field="install",
            found=shown(request.install),
            problem="names a file of the source, and the job has no source",
            fix="Add source, or list the requirements: [timm==1.0.9].",
        )


def may_read(uri: str, *, locations: Sequence[str]) -> bool:
    """Return True if a role lists and reads a URI.

    Args:
        uri: The URI of a bucket, a prefix or an object. Example: `s3://<bucket>/<prefix>`.
        locations: The readable locations. Example: `s3://<bucket>/<prefix>/`.
    """
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return f"s3://{bucket}/{prefix}".startswith(tuple(locations))


@rule("channels", "source", "team")
def _data_can_be_read(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if defaults.data_locations is None or defaults.checkpoint_bucket is None:
        return
    locations = (defaults.runs_uri(request.team), *defaults.data_locations)
    readable = (*locations, defaults.sources_uri(request.team))
    wanted = {f"channels.{channel.name}.uri": channel.uri for channel in request.s3_channels}
    if isinstance(request.source, ArchiveSource):
        wanted = {"source": request.source.uri, **wanted}
    for field, uri in wanted.items():
        if may_read(uri, locations=readable):
            continue
        fix = (
            f"Name {_folder_of(uri)} in the deployment's setting data_locations (and its KMS key, if it has one, in "
            "data_key_arns), and deploy again."
        )
        if may_read(f"{uri}/", locations=readable):
            fix = f"Write {uri}/, with a slash at its end: without, other names that begin alike are meant, too."
        yield Problem(
            field=field,
            found=shown(uri),
            problem=f"is not among what the run's role may read: {first_few(locations)}",
            fix=fix,
        )


@rule("checkpoint_prefix", "team")
def _checkpoints_can_be_written(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield the fault of a prefix. All have one shape, so that none lies inside another (I1)."""
    prefix = request.checkpoint_prefix
    if prefix is None or defaults.checkpoint_bucket is None:
        return
    runs = defaults.runs_uri(request.team)
    shape = rf"{re.escape(runs)}[a-zA-Z0-9][a-zA-Z0-9-]{{0,{MAX_RUN_ID_LENGTH - 1}}}/checkpoints/"
    if not re.fullmatch(shape, prefix, re.ASCII):
        yield Problem(
            field="checkpoint_prefix",
            found=shown(prefix),
            problem="is not where the run's role may write checkpoints",
            fix=f"Give {runs}<run>/checkpoints/, or leave it out for one of the run's own.",
        )


def _folder_of(uri: str) -> str:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return f"s3://{bucket}/{''.join(key.rpartition('/')[:2])}"


RULES: Final[tuple[Rule, ...]] = (
    excluded(
        "checkpoint_prefix",
        where=lambda request: not request.checkpoints,
        reads=("checkpoints",),
        problem="is given with checkpoints: false",
        fix="Remove checkpoint_prefix, or set checkpoints: true.",
    ),
    _channels_fit,
    _keys_can_be_files,
    _file_systems_can_be_mounted,
    _requirements_file_needs_a_source,
    _data_can_be_read,
    _checkpoints_can_be_written,
)
