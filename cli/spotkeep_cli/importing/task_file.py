"""Reads a job document out of a task file of SkyPilot or dstack. Pure.

Each field is taken for one of the document, or left out by name. Commands run as in the other tool, on each host and
with the variables of that tool where they use some. A command that only starts torchrun gets the field `distributed`,
and loses the options that place the hosts.

Sources:
    https://docs.skypilot.co/en/latest/reference/yaml-spec.html
    https://docs.skypilot.co/en/latest/running-jobs/distributed-jobs.html
    https://dstack.ai/docs/reference/dstack.yml/task/
    https://dstack.ai/docs/concepts/tasks/ (Distributed tasks)
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from spotkeep_cli.importing.training_job import (
    ELSEWHERE,
    WITHOUT_A_FIELD,
    ImportedJob,
    LeftOut,
    lost,
    replaced,
    shortened_name,
)
from spotkeep_fleet.ranks import TORCHRUN, torchrun_line
from spotkeep_jobs.document.distributed import NO_RANKS
from spotkeep_jobs.document.shell_text import is_block
from spotkeep_jobs.record.record import BackendName

_HOST_LIST: Final = "$(echo \"$SM_HOSTS\" | tr -d '[]\" ' | tr ',' '\\n')"
_NO_MOUNTS: Final = lost("give data in S3 as channels, and let the script save in /opt/ml/checkpoints")
_NO_SIZES: Final = lost("the instance type says it: write instance_type")
_BEST_FIRST: Final = lost("write instance_types, best first")
_GOES_ON: Final = replaced("a run goes on after each interruption; max_attempts bounds that")
_SOURCE: Final = replaced("the directory of the task file is the source")


@dataclass(frozen=True, kw_only=True)
class _Tool:
    """A tool with task files of its own.

    Attributes:
        name: Its name.
        nodes: The field with the number of hosts.
        variables: The variables that it gives to commands, with those of a job that hold the same.
        meanings: What leaving a field out means, by its path.
    """

    name: str
    nodes: str
    variables: Mapping[str, str]
    meanings: Mapping[str, LeftOut]


_SKYPILOT: Final = _Tool(
    name="SkyPilot",
    nodes="num_nodes",
    variables={
        "SKYPILOT_NUM_NODES": "$SM_HOST_COUNT",
        "SKYPILOT_NODE_RANK": "$SM_CURRENT_HOST_RANK",
        "SKYPILOT_NUM_GPUS_PER_NODE": "$SM_NUM_GPUS",
        "SKYPILOT_NODE_IPS": _HOST_LIST,
    },
    meanings={
        "secrets": lost("store each in AWS Secrets Manager and name it in secrets: no value stands in a job file"),
        "file_mounts": _NO_MOUNTS,
        "volumes": _NO_MOUNTS,
        "resources.cpus": _NO_SIZES,
        "resources.memory": _NO_SIZES,
        "resources.accelerators": _NO_SIZES,
        "resources.any_of": _BEST_FIRST,
        "resources.ordered": _BEST_FIRST,
        "resources.job_recovery": _GOES_ON,
        "resources.autostop": replaced("instances of a job end with it"),
        **dict.fromkeys(
            ("resources.cloud", "resources.infra", "resources.region", "resources.zone"),
            ELSEWHERE,
        ),
    },
)
_DSTACK: Final = _Tool(
    name="dstack",
    nodes="nodes",
    variables={
        "DSTACK_NODES_NUM": "$SM_HOST_COUNT",
        "DSTACK_NODE_RANK": "$SM_CURRENT_HOST_RANK",
        "DSTACK_GPUS_PER_NODE": "$SM_NUM_GPUS",
        "DSTACK_GPUS_NUM": "$((SM_HOST_COUNT * SM_NUM_GPUS))",
        "DSTACK_MASTER_NODE_IP": "$SM_MASTER_ADDR",
        "DSTACK_NODES_IPS": _HOST_LIST,
    },
    meanings={
        "python": replaced("the image brings its Python"),
        "volumes": _NO_MOUNTS,
        "resources.gpu": _NO_SIZES,
        "resources.cpu": _NO_SIZES,
        "resources.memory": _NO_SIZES,
        "resources.shm_size": replaced("a container gets its shared memory by its instance"),
        "retry": _GOES_ON,
        "backends": ELSEWHERE,
        "regions": ELSEWHERE,
        "repos": _SOURCE,
        "files": _SOURCE,
    },
)
_GPUS: Final[Mapping[tuple[str, int], str]] = {
    ("T4", 1): "g4dn.xlarge", ("T4", 4): "g4dn.12xlarge",
    ("A10G", 1): "g5.xlarge", ("A10G", 4): "g5.12xlarge", ("A10G", 8): "g5.48xlarge",
    ("L4", 1): "g6.xlarge", ("L4", 4): "g6.12xlarge", ("L4", 8): "g6.48xlarge",
    ("L40S", 1): "g6e.xlarge", ("L40S", 4): "g6e.12xlarge", ("L40S", 8): "g6e.48xlarge",
    ("V100", 1): "p3.2xlarge", ("V100", 4): "p3.8xlarge", ("V100", 8): "p3.16xlarge",
    ("A100", 8): "p4d.24xlarge", ("A100-80GB", 8): "p4de.24xlarge",
    ("H100", 1): "p5.4xlarge", ("H100", 8): "p5.48xlarge", ("H200", 8): "p5en.48xlarge",
    ("B200", 8): "p6-b200.48xlarge",
}  # fmt: skip
"""The smallest type with so many GPUs of a name."""
_OF_A_SHELL: Final = re.compile(r"[$`]")
_SUBSTITUTION: Final = re.compile(r"\$\([^()]*\)|`[^`]*`")
_OPERATORS: Final = re.compile(r"[;&|<>]")
_NO_WORK: Final = re.compile(
    r"""\s*(#|(echo|set)\s[^;&|<>]*$|(export\s+)?[A-Za-z_]\w*=(\$\([^()]*\)|`[^`]*`|"[^"]*"|[^\s;&|]*)\s*$)"""
)
"""A line that only prints or gives a variable a value."""
_EXPORTS: Final = re.compile(r"\s*export\s+(?!(?:MASTER_ADDR|MASTER_PORT|NODE_RANK|RANK|WORLD_SIZE)=)")
"""The beginning of a line that gives the ranks a variable, other than one that torchrun sets."""
_INSTALLS: Final = re.compile(r"(pip3?|uv|python3? -m pip|apt(-get)?|conda|mamba)\s[^;&|<>]*$")
_GIGABYTES: Final = re.compile(r"(\d+)\s*(?:GB?)?", re.IGNORECASE)


def import_task(document: object, *, name: str, backend: BackendName = "sagemaker") -> ImportedJob:
    """Read a task.

    Args:
        document: The content of the file.
        name: The job's name where the task has none.
        backend: The service that runs the job. Several nodes of the task are hosts of a training job, or nodes on EC2.

    Raises:
        ValueError: It is no task of SkyPilot or dstack.
    """
    if not isinstance(document, Mapping):
        raise ValueError("it is no mapping")  # noqa: TRY004 - of the file's content
    if document.get("type") == "task":
        return _Task(_DSTACK, document, backend=backend).read_dstack(name=name)
    if "type" not in document and ("run" in document or "num_nodes" in document) and "command" not in document:
        return _Task(_SKYPILOT, document, backend=backend).read_skypilot(name=name)
    raise ValueError("it is neither a task of SkyPilot (with run) nor one of dstack (with type: task)")


class _Task:
    """A job document made of a task. Each field is taken or left out by name."""

    def __init__(self, tool: _Tool, document: Mapping[str, Any], *, backend: BackendName) -> None:
        self._tool = tool
        self._on_ec2 = backend == "ec2"
        self._rest = {str(name): value for name, value in document.items()}
        resources = self._rest.pop("resources", None)
        self._resources = dict(resources) if isinstance(resources, Mapping) else {}
        self._fields: dict[str, Any] = {}
        self._left_out: list[LeftOut] = []
        if resources is not None and not isinstance(resources, Mapping):
            self._left_out.append(LeftOut(field="resources", why="it is no mapping"))

    def read_skypilot(self, *, name: str) -> ImportedJob:
        """Read a task of SkyPilot."""
        self._read_name(name)
        workdir = self._rest.pop("workdir", None)
        if isinstance(workdir, Mapping) and "url" in workdir:
            self._fields["source"] = {"git": workdir["url"]}
            self._left_out.append(LeftOut(field="workdir.ref", why="write the commit in full, as source.commit"))
        elif workdir is not None:
            self._fields["source"] = workdir
        self._read_commands(self._rest.pop("run", None), setup=self._rest.pop("setup", None), path="run")
        self._read_instances(self._resources.pop("instance_type", None), gpus=self._resources.get("accelerators"))
        self._fields["capacity"] = "spot" if self._resources.pop("use_spot", False) else "on-demand"
        self._read_disk(self._resources.pop("disk_size", None), path="resources.disk_size")
        image = self._resources.get("image_id")
        if isinstance(image, str) and image.startswith("docker:"):
            self._fields["image"] = self._resources.pop("image_id").removeprefix("docker:")
        self._fields["tags"] = self._resources.pop("labels", None)
        self._read_environment(self._rest.pop("envs", None), path="envs")
        return self._done()

    def read_dstack(self, *, name: str) -> ImportedJob:
        """Read a task of dstack."""
        del self._rest["type"]
        self._read_name(name)
        self._fields["source"] = "."
        commands = self._rest.pop("commands", None)
        lines = "\n".join(map(str, commands)) if isinstance(commands, list) else commands
        self._read_commands(lines, setup=None, path="commands")
        types = self._rest.pop("instance_types", None)
        self._read_instances(types, gpus=self._resources.get("gpu"))
        policy = self._rest.pop("spot_policy", "on-demand")
        self._fields["capacity"] = policy if policy in ("spot", "auto") else "on-demand"
        disk = self._resources.pop("disk", None)
        self._read_disk(disk.get("size") if isinstance(disk, Mapping) else disk, path="resources.disk")
        self._fields["image"] = self._rest.pop("image", None)
        duration = self._rest.pop("max_duration", None)
        self._fields["max_run"] = None if duration in (False, "off") else duration
        self._read_environment(self._rest.pop("env", None), path="env")
        return self._done()

    def _done(self) -> ImportedJob:
        rest = {**self._rest, **{f"resources.{name}": value for name, value in self._resources.items()}}
        alike: dict[LeftOut, list[str]] = {}
        for path, value in rest.items():
            if value in (None, False, "", [], {}):
                continue
            if path in self._tool.meanings:
                alike.setdefault(self._tool.meanings[path], []).append(path)
            else:
                self._left_out.append(LeftOut(field=path, why=WITHOUT_A_FIELD))
        self._left_out += [replace(meaning, field=", ".join(paths)) for meaning, paths in alike.items()]
        return ImportedJob.of(self._fields, self._left_out)

    def _read_name(self, name: str) -> None:
        self._fields["name"] = shortened_name(str(self._rest.pop("name", None) or name), self._left_out, path="name")
        count = self._rest.pop(self._tool.nodes, None)
        self._fields |= {"backend": "ec2", "nodes": count} if self._on_ec2 else {"instance_count": count}

    def _read_commands(self, lines: Any, *, setup: Any, path: str) -> None:
        """Read the lines that each host runs."""
        self._fields["setup"] = setup
        self._name_unknown_variables(setup, path="setup")
        if not isinstance(lines, str) or not lines.strip():
            self._left_out.append(LeftOut(field="command", why="there is none: write the command that trains"))
            return
        ranks = _ranks_of(lines)
        if ranks is not None:
            installs, command, exported = ranks
            if installs:
                before = [setup.strip()] if isinstance(setup, str) else []
                self._fields["setup"] = "\n".join([*before, *installs, ""])
            self._fields |= {"command": command, "distributed": TORCHRUN, "environment": exported}
            why = "the runner gives torchrun the hosts, so its options for them are left out"
            self._left_out.append(LeftOut(field=path, why=why, replaced=True))
            return
        self._name_unknown_variables(lines, path=path, known=self._tool.variables)
        used = [each for each in self._tool.variables if re.search(rf"\b{each}\b", lines)]
        if used:
            given = (f'export {each}="{self._tool.variables[each]}"' for each in used)
            lines = "\n".join([f"# The variables of {self._tool.name}:", *given, lines.strip(), ""])
            self._fields["distributed"] = NO_RANKS
        self._fields["command"] = f"{lines.strip()}\n" if is_block(lines) else lines.strip()

    def _name_unknown_variables(self, lines: Any, *, path: str, known: Collection[str] = ()) -> None:
        """Name the variables of the tool that lines use, and that the job does not have there."""
        used = re.findall(rf"\b{self._tool.name.upper()}_\w+", lines) if isinstance(lines, str) else []
        self._left_out += [
            LeftOut(field=f"{path}.{each}", why="a job has no such variable there: write its value in its place")
            for each in dict.fromkeys(used)
            if each not in known
        ]

    def _read_instances(self, types: Any, *, gpus: Any) -> None:
        prefix = "" if self._on_ec2 else "ml."
        if types is not None:
            given = types if isinstance(types, list) else [types]
            self._fields["instance_types"] = [f"{prefix}{str(each).removeprefix('ml.')}" for each in given]
        elif (found := _type_with(gpus)) is not None:
            self._fields["instance_types"] = [f"{prefix}{found}"]
        else:
            return
        for name in ("accelerators", "gpu", "cpus", "cpu", "memory"):
            self._resources.pop(name, None)

    def _read_disk(self, size: Any, *, path: str) -> None:
        found = _GIGABYTES.fullmatch(str(size).strip()) if size is not None else None
        if found is not None:
            size_gb = int(found[1])
            self._fields |= {"volume": {"size_gb": size_gb}} if self._on_ec2 else {"volume_size_gb": size_gb}
        elif size is not None:
            field = "volume: {size_gb: ...}" if self._on_ec2 else "volume_size_gb"
            self._left_out.append(LeftOut(field=path, why=f"it is no size in GB: write {field}"))

    def _read_environment(self, given: Any, *, path: str) -> None:
        """Read variables. One without a value comes from the shell of the person who starts the task."""
        pairs = dict(_pairs(given))
        valued = {name: value for name, value in pairs.items() if value is not None}
        self._fields["environment"] = {**valued, **self._fields.get("environment", {})}
        self._left_out += [
            LeftOut(field=f"{path}.{name}", why="it has no value: write it in environment, or a secret in secrets")
            for name, value in pairs.items()
            if value is None
        ]


def _pairs(given: Any) -> Iterator[tuple[str, Any]]:
    """Yield variables with their values, from a mapping or a list of `NAME=value`."""
    if isinstance(given, Mapping):
        yield from ((str(name), None if value in (None, "") else value) for name, value in given.items())
    for each in given if isinstance(given, list) else ():
        name, equals, value = str(each).partition("=")
        yield name, value if equals else None


def _ranks_of(lines: str) -> tuple[list[str], list[str], dict[str, str]] | None:
    """Return the lines that install something, the command of torchrun, and the variables that lines export for it.

    The command lacks its options for hosts. None where the lines start something else, or where other words than these
    options need a shell.
    """
    joined = re.sub(r"\\\n\s*", " ", lines)
    rest = [line.strip() for line in joined.split("\n") if line.strip() and not _NO_WORK.match(line)]
    installs = [line for line in rest[:-1] if _INSTALLS.match(line)]
    # The output of a command within the line is a word that needs a shell, and has no operator of the line.
    last = _SUBSTITUTION.sub("$_", rest[-1]) if rest else ""
    if not rest or len(installs) + 1 < len(rest) or _OPERATORS.search(last):
        return None
    exports = [line for line in joined.split("\n") if _NO_WORK.match(line) and _EXPORTS.match(line)]
    try:
        line = torchrun_line(shlex.split(last))
        exported = dict(word.split("=", 1) for each in exports for word in shlex.split(each)[1:])
    except ValueError:
        return None
    if line is None:
        return None
    kept: list[str] = []
    for option in line.options:
        name = option[0].partition("=")[0]
        of_processes = name in line.process_options and any(map(_OF_A_SHELL.search, option))
        if name not in line.host_options and not of_processes:
            kept += option
    command = [*line.program, *kept, *line.rest]
    needs_a_shell = any(map(_OF_A_SHELL.search, [*command, *installs, *exports]))
    return None if needs_a_shell else (installs, command, exported)


def _type_with(gpus: Any) -> str | None:
    """Return the instance type with some GPUs, as both tools write them. None where it is not known."""
    if isinstance(gpus, Mapping):
        if "name" in gpus:
            names = gpus["name"]
            given = [str(names[0] if isinstance(names, list) and names else names), str(gpus.get("count", 1))]
        else:
            given = [str(part) for pair in list(gpus.items())[:1] for part in pair]
    else:
        given = re.split("[:,]", str(gpus)) if gpus is not None else []
    counts = [int(each) for each in given[1:] if each.strip().isdigit()]
    sizes = [each.strip().upper() for each in given[1:] if re.fullmatch(r"\d+GB", each.strip(), re.IGNORECASE)]
    name = "-".join([given[0].strip().upper(), *(size for size in sizes if size == "80GB")]) if given else ""
    return _GPUS.get((name, counts[0] if counts else 1))
