"""Reads a job file into the document for the launcher, and remembers the line of each field.

YAML is read by the rules of its version 1.2, as people expect. `on`, `no` and `12:30` are text, and `1e-3` is a number.
Where AWS takes a field as text, the text in the file wins. For example, a version 1.10 stays 1.10. Nothing is judged
here. The launcher decides if a value makes sense.
"""

from __future__ import annotations

import errno
import itertools
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml

from spotkeep_cli.bounded_reading import read_file
from spotkeep_cli.errors import JobFileError, LocatedProblem, UsageError
from spotkeep_cli.launching.job_schema import FieldSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from spotkeep_jobs.errors import Problem

FieldPath = tuple[str | int, ...]
_ALIASES: Mapping[FieldPath, FieldPath] = {("instance_types",): ("instance_type",)}
"""Fields that a file may give by another name."""

MAX_JOB_FILE_BYTES = 256 * 1024
"""A job file is a page of text. More is a mistaken argument. (An invocation carries at most 6 MB.)"""
MAX_VALUES = 20_000
"""The most values of a job file with every alias (`*name`) written out.

A few lines of aliases of aliases make millions.
"""
MAX_CHARACTERS = 4 * MAX_JOB_FILE_BYTES
"""The most characters in all its texts, with every alias written out."""
MAX_DEPTH = 40
"""The most levels of lists and mappings inside each other."""
_MOST_DIGITS = 400


@dataclass(frozen=True, kw_only=True)
class JobDocument:
    """A job file after its overrides, with the values to send and the origin of each.

    Attributes:
        path: The job file. For fields that stand in no file, the place that their paths are relative to.
        is_file: False for fields that stand in no file, such as a dictionary of Python.
        fields: The document, as the launcher takes it.
        lines: The line (from 1) of each field that stands in the file.
        overridden: The fields that `--set` gave.
    """

    path: Path
    fields: dict[str, Any]
    lines: Mapping[FieldPath, int] = field(default_factory=dict)
    overridden: frozenset[FieldPath] = frozenset()
    is_file: bool = True

    def line_of(self, field_name: str) -> int | None:
        """Return the line of a field as problems name it (`channels[0].uri`), or of the nearest field around it.

        None where `--set` gave the field, something around it or something in it.
        """
        if self.option_of(field_name) is not None:
            return None
        return next((self.lines[path] for path in _with_those_around(field_name) if path in self.lines), None)

    def option_of(self, field_name: str) -> str | None:
        """Return the field, such as `channels.0.uri`, that `--set` gave in place of this one. None where it did not.

        It is the field itself, the nearest one around it, or the first one in it.
        """
        paths = list(_with_those_around(field_name))
        inside = (each for each in sorted(self.overridden, key=_spell) if paths and each[: len(paths[0])] == paths[0])
        found = next((path for path in paths if path in self.overridden), None) or next(inside, None)
        return None if found is None else _spell(found)

    def is_overridden(self, field_name: str) -> bool:
        """Return True if `--set` gave the field or something around it."""
        return not self.overridden.isdisjoint(_with_those_around(field_name))

    def with_fields(self, fields: Mapping[str, Any]) -> JobDocument:
        """Return the document with other values for some fields, as if `--set` gave them. None takes a field away."""
        changed = {**self.fields, **fields}
        return replace(
            self,
            fields={name: value for name, value in changed.items() if value is not None or name not in fields},
            overridden=self.overridden | {(name,) for name, value in fields.items() if value is not None},
        )

    def located(self, problems: Iterable[Problem]) -> list[LocatedProblem]:
        """Return the same problems with their lines, in the order of the file. Those without a line come last."""
        located = [
            LocatedProblem(**vars(problem), line=self.line_of(problem.field), option=self.option_of(problem.field))
            for problem in problems
        ]
        return sorted(located, key=lambda problem: (problem.line is None, problem.line or 0))


def read_job_file(path: Path, *, overrides: Sequence[str] = ()) -> JobDocument:
    """Read a job file and apply `--set` overrides in order.

    Args:
        path: The YAML (or JSON) file.
        overrides: `field=value` each, with dots for inner fields, for example `hyperparameters.lr=0.1`.

    Raises:
        JobFileError: The file is missing, too large, not YAML, or not a mapping. The error names the line.
        UsageError: An override cannot be understood.
    """
    if path.suffix == ".py":
        script = shlex.quote(str(path))
        raise JobFileError(
            f"{path} is a script, and this command takes a job file",
            hint=f"spotkeep init {script} writes one. spotkeep rehearse -- python {script} needs none",
        )
    fields, lines = _parse(_read(path), path=path)
    fields, overridden = with_overrides(fields, overrides)
    return JobDocument(path=path, fields=fields, lines=lines, overridden=frozenset(overridden))


def with_overrides(fields: dict[str, Any], overrides: Sequence[str]) -> tuple[dict[str, Any], list[FieldPath]]:
    """Apply `--set` overrides in order, in place. Return the fields, and the names of those that were given.

    Raises:
        UsageError: An override cannot be understood.
    """
    overridden = []
    for override in overrides:
        target, value = parse_override(override)
        _apply(fields, target, value, override=override)
        overridden.append(target)
    return fields, overridden


def parse_override(override: str) -> tuple[FieldPath, Any]:
    """Split `hyperparameters.lr=1e-3` into its field and its value, read like a value of a job file.

    YAML would cut off a part as a comment, or fold it. Such a part is kept, because one argument can have no other
    meaning.

    Raises:
        UsageError: There is no `=`, no field, or the value is not YAML.
    """
    name, separator, text = override.partition("=")
    path = parse_field_path(name.strip())
    if not separator or not path:
        raise UsageError(
            f"--set takes field=value, found {override!r}",
            hint="for example: --set max_run=2h --set hyperparameters.lr=0.1",
        )
    schema = FieldSchema.of_job_file()
    for part in path:
        schema = schema.inside(part)
    try:
        value = _override_value(text, schema)
    except yaml.YAMLError as error:
        raise UsageError(
            f"the value in --set {override} is not YAML: {_reason(error)}",
            hint="put the whole of it in quotes for your shell: --set 'notify=[completed, failed]'; "
            "and a text in two kinds of them: --set 'tags.note=\"@home\"'",
        ) from error
    except _WrongNodeError as error:
        raise UsageError(f"the value in --set {override}: {error.problem}", hint=error.hint) from error
    except _NOT_WHAT_A_TAG_SAYS as error:
        raise UsageError(f"the value in --set {override} does not fit its tag", hint=_NO_TAGS) from error
    return path, value


def _override_value(text: str, schema: FieldSchema) -> Any:
    written = text.strip()
    loader = _JobFileLoader(text)
    node = loader.get_single_node()
    cut = node is None or (isinstance(node, yaml.ScalarNode) and node.style is None and node.value != written)
    if cut and written and schema.is_text:
        return written
    return None if node is None else loader.construct_document(_Reading().read(node, schema))


def parse_field_path(name: str) -> FieldPath:
    """Return the path of a name. Both `channels[0].uri` and `channels.0.uri` give `("channels", 0, "uri")`."""
    parts = re.sub(r"\[(\d+)\]", r".\1", name).split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts if part)


def _with_those_around(field_name: str) -> Iterator[FieldPath]:
    """Yield the path of a field, those of the fields around it, and that of its other name."""
    path = parse_field_path(field_name)
    while path:
        yield path
        path = path[:-1] or _ALIASES.get(path, ())


def _read(path: Path) -> str:
    try:
        return read_file(path, most_bytes=MAX_JOB_FILE_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise JobFileError(
            f"there is no file {path}",
            hint="give the path of a job file. `spotkeep init train.py` writes one, `spotkeep help job-file` has more",
        ) from error
    except IsADirectoryError as error:
        raise JobFileError(f"{path} is a directory", hint=f"give the file in it: {path / 'job.yaml'}") from error
    except UnicodeDecodeError as error:
        raise JobFileError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        hint = "give the YAML file that describes the job, not its data" if error.errno == errno.EFBIG else ""
        raise JobFileError(f"{path} cannot be read as a job file: {error.strerror}", hint=hint) from error


_NOT_WHAT_A_TAG_SAYS = (ValueError, TypeError, LookupError, AttributeError)
"""The errors of PyYAML's constructors for text that does not fit its tag (`!!int`, `!!timestamp`)."""
_ANOTHER_DOCUMENT = "but found another document"
"""PyYAML's words for it."""
_NO_TAGS = "leave tags (`!!`) out: plain values say what they are"


def _parse(text: str, *, path: Path) -> tuple[dict[str, Any], dict[FieldPath, int]]:
    reading = _Reading()
    try:
        loader = _JobFileLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise JobFileError(f"{path} is empty", hint="a job needs at least `name` and `command`")
        if not isinstance(root, yaml.MappingNode):
            raise JobFileError(
                f"{path}:1: a job file is a list of `field: value` lines, found a {_kind(root)}",
                hint="start with `name: my-job`",
            )
        fields = loader.construct_document(reading.read(root, FieldSchema.of_job_file()))
        _refuse_joined_commands(root, text.splitlines(), path=path)
    except _WrongNodeError as error:
        raise JobFileError(f"{path}:{error.line}: {error.problem}", hint=error.hint) from error
    except yaml.MarkedYAMLError as error:
        if error.problem == _ANOTHER_DOCUMENT:
            hint = "give each job a file of its own, or remove the line ---"
            raise JobFileError(f"{path}:{_line(error)}: a second job begins here", hint=hint) from error
        hint = "check the indentation, quotes and colons on that line and the one before"
        if "'\\t'" in _reason(error):
            hint = "write spaces in place of tabs; in JSON too, which is read as YAML"
        raise JobFileError(f"{path}:{_line(error)}: not YAML: {_reason(error)}", hint=hint) from error
    except yaml.YAMLError as error:
        raise JobFileError(f"{path}: not YAML: {_reason(error)}", hint="save it as plain UTF-8 text") from error
    except _NOT_WHAT_A_TAG_SAYS as error:
        raise JobFileError(f"{path} holds a value that does not fit its tag", hint=_NO_TAGS) from error
    return fields, reading.lines


class _WrongNodeError(Exception):
    """A value of a job file that PyYAML takes, and a job file may not hold."""

    def __init__(self, node: yaml.Node, problem: str, *, hint: str) -> None:
        super().__init__(problem)
        self.line, self.problem, self.hint = node.start_mark.line + 1, problem, hint


@dataclass(kw_only=True)
class _Expanded:
    """The size of a job file with every alias written out, as far as it was read."""

    values: int = 0
    characters: int = 0

    def add(self, node: yaml.Node, *, depth: int) -> str | None:
        """Count a value. Return the name of the exceeded limit, or None below the limits."""
        self.values += 1
        self.characters += len(node.value) if isinstance(node, yaml.ScalarNode) else 0
        if depth > MAX_DEPTH:
            return f"more than {MAX_DEPTH} lists and mappings inside each other"
        if self.values > MAX_VALUES:
            return f"more than {MAX_VALUES} values"
        return f"more than {MAX_CHARACTERS} characters" if self.characters > MAX_CHARACTERS else None


_TAG = "tag:yaml.org,2002:"
_NO_JSON = frozenset(f"{_TAG}{name}" for name in ("binary", "omap", "pairs", "set"))
"""Tags of objects that JSON has no form for."""


@dataclass(kw_only=True)
class _Reading:
    """Reads the line of each field from a job file's nodes, and finds the words that are text."""

    lines: dict[FieldPath, int] = field(default_factory=dict)
    _expanded: _Expanded = field(default_factory=_Expanded)

    def read(
        self, node: yaml.Node, schema: FieldSchema, at: FieldPath = (), inside: frozenset[int] = frozenset()
    ) -> yaml.Node:
        """Return a node in which text is text and aliases are written out.

        One value may be text here and a number there.

        Args:
            node: As PyYAML read it.
            schema: The schema of that place.
            at: The place of the node.
            inside: The nodes around it.

        Raises:
            _WrongNodeError: A job file may not hold it.
        """
        too_much = self._expanded.add(node, depth=len(inside))
        if too_much is not None:
            problem = f"with its aliases (*name) written out the file holds {too_much}"
            hint = "a job file is a page of text; put data into a file that the training reads"
            raise _WrongNodeError(node, problem, hint=hint)
        if id(node) in inside:
            hint = "write the value out instead of repeating it with *"
            raise _WrongNodeError(node, "the anchor used here contains itself", hint=hint)
        if node.tag in _NO_JSON:
            raise _WrongNodeError(node, f"a job file holds no !!{node.tag.removeprefix(_TAG)}", hint=_NO_TAGS)
        inside = inside | {id(node)}
        if isinstance(node, yaml.MappingNode):
            pairs = [self._pair(key, value, schema, at, inside) for key, value in node.value]
            return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[*at, index] = item.start_mark.line + 1
                items.append(self.read(item, schema.inside(index), (*at, index), inside))
            return yaml.SequenceNode(node.tag, items, node.start_mark, node.end_mark)
        text = _kept_text(node, schema)
        tag, value = (node.tag, node.value) if text is None else (f"{_TAG}str", text)
        return yaml.ScalarNode(tag, value, node.start_mark, node.end_mark)

    def _pair(
        self, key_node: yaml.Node, value_node: yaml.Node, schema: FieldSchema, at: FieldPath, inside: frozenset[int]
    ) -> tuple[yaml.Node, yaml.Node]:
        """Return a name and its value. A name is always text."""
        merged = key_node.tag == f"{_TAG}merge"
        key = (*at, str(key_node.value))
        line = key_node.start_mark.line + 1
        if key in self.lines and not merged:
            problem = f"the field {key_node.value!r} is given twice, first on line {self.lines[key]}"
            raise _WrongNodeError(key_node, problem, hint="remove one of the two")
        self.lines[key] = line
        if merged:
            return key_node, self._merged(value_node, schema, key, inside)
        name = _as_text(key_node) if isinstance(key_node, yaml.ScalarNode) else key_node
        return name, self.read(value_node, schema.inside(str(key_node.value)), key, inside)

    def _merged(self, node: yaml.Node, schema: FieldSchema, at: FieldPath, inside: frozenset[int]) -> yaml.Node:
        """Return the node that `<<` merges into its mapping. It is one mapping, or a list of them."""
        if not isinstance(node, yaml.SequenceNode):
            return self.read(node, schema, at, inside)
        items = [self.read(item, schema, (*at, index), inside) for index, item in enumerate(node.value)]
        return yaml.SequenceNode(node.tag, items, node.start_mark, node.end_mark)


def _as_text(node: yaml.Node) -> yaml.ScalarNode:
    return yaml.ScalarNode(f"{_TAG}str", node.value, node.start_mark, node.end_mark)


def _kept_text(node: yaml.Node, schema: FieldSchema) -> str | None:
    """Return the text of a word that YAML takes for a number, a boolean or a merge. None where it is one."""
    if node.tag in {f"{_TAG}int", f"{_TAG}float"}:
        return schema.text_of_number(node.value)
    # `<<` merges as a name alone.
    is_text = node.tag == f"{_TAG}merge" or (node.tag == f"{_TAG}bool" and schema.keeps_boolean(node.value))
    return node.value if is_text else None


_COMMANDS = ("command", "setup")
_WHOLE_COMMAND = re.compile(
    r"((sudo|nohup|time)\s+)?(\S*/)?(python[\d.]*\s(?!.*no.python).*(\.py\b|-[mc]\s+\S)|(torchrun|accelerate|deepspeed)\s.*\.py\b|"
    r"[^\s-]\S*\.sh\b|pip\d?\s|uv\s+(pip|sync|add)\b|conda\s+(install|create|env)\s|(ba)?sh\s+[^-]|git\s|aws\s|"
    r"(apt(-get)?|mkdir|cp|rm|chmod|touch|wget|curl|echo)\s)"
)
"""A line that is a command by itself, or takes any words that follow it."""
_NEXT_COMMAND = re.compile(
    r"(python[\d.]*|torchrun|accelerate|deepspeed|pip\d?|(ba)?sh|apt-get|aws|git|cd|export|sudo|uv|conda|chmod|echo|"
    r"\./\S+)(\s|$)"
)
_OPTION_WITH_VALUE = re.compile(r"--?\w\S*(=|\s+)\S")
_GOES_ON = re.compile(r"(\\|&&|\|\|?|;|\s--)$")


def _refuse_joined_commands(root: yaml.MappingNode, lines: list[str], *, path: Path) -> None:
    """Refuse commands on lines that YAML joins into one.

    The first command would get the others as arguments. Only this function sees the lines. YAML keeps line ends only in
    a text after `|`.
    """
    for key, node in root.value:
        if key.value not in _COMMANDS or not isinstance(node, yaml.ScalarNode) or node.style == "|":
            continue
        first, last = node.start_mark.line, node.end_mark.line
        begins = lines[first : first + 1] if node.style != ">" else []
        texts = [line[node.start_mark.column :] for line in begins] + lines[
            first + 1 : last + bool(node.end_mark.column)
        ]
        written = [text.strip().strip("\"'") for text in texts if text.strip()]
        if "\n" in node.value.strip():
            continue
        begun = None
        for text, following in itertools.pairwise(written):
            if _WHOLE_COMMAND.match(text):
                begun = text
            elif not _OPTION_WITH_VALUE.match(text):
                begun = None
            if begun is not None and not _GOES_ON.search(text) and _NEXT_COMMAND.match(following):
                line = key.start_mark.line + 1
                raise JobFileError(
                    f"{path}:{line}: {key.value} has several lines, which YAML joins into one command: "
                    f"{begun!r} would get {following!r} as arguments",
                    hint=f"write `{key.value}: |`, which keeps the lines: bash then runs one after the other. Or write "
                    "one line, if they are one command",
                )


def _apply(fields: dict[str, Any], target: FieldPath, value: Any, *, override: str) -> None:
    container: Any = fields
    for depth, part in enumerate(target):
        last = depth == len(target) - 1
        if isinstance(container, list):
            if not isinstance(part, int) or part >= len(container):
                raise UsageError(
                    f"--set {override}: {_spell(target[:depth])} is a list of {len(container)}, "
                    f"found {part!r} where a position in it belongs",
                    hint=f"positions count from 0: {_spell(target[:depth])}.0",
                )
            key: Any = part
        elif isinstance(container, dict):
            key = str(part)
        else:
            raise UsageError(
                f"--set {override}: {_spell(target[:depth])} is the value {container!r}, nothing can be set inside it",
                hint=f"set the whole: --set {_spell(target[:depth])}=...",
            )
        if last:
            container[key] = value
        elif isinstance(container, dict):
            if container.get(key) is None:
                container[key] = {}
            container = container[key]
        else:
            container = container[key]


def _spell(path: FieldPath) -> str:
    return ".".join(str(part) for part in path)


def _kind(node: yaml.Node) -> str:
    return "list" if isinstance(node, yaml.SequenceNode) else "single value"


def _line(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark else 1


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        return error.problem
    return str(error).splitlines()[0]


class _JobFileLoader(yaml.SafeLoader):
    """A safe loader whose plain scalars follow YAML 1.2.

    For example, `on` and `12:30` are text, and `1e-3` is a number.
    """

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Read a value and its content, to a limited depth. PyYAML takes seconds until Python's own depth ends it."""
        if self._depth > MAX_DEPTH and parent is not None:
            problem = f"more than {MAX_DEPTH} lists and mappings inside each other"
            raise yaml.composer.ComposerError(problem=problem, problem_mark=parent.start_mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Read a value. Two escapes that JSON writes for one character (a surrogate pair) are that character."""
        node = super().compose_scalar_node(anchor)
        if node.style == '"':
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        return node


_JobFileLoader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
):
    _JobFileLoader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), list(_first))


def _construct_decimal(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    # YAML 1.1 reads 010 as eight; people mean ten.
    text = str(loader.construct_scalar(node))
    if len(text) > _MOST_DIGITS:
        raise yaml.constructor.ConstructorError(problem=f"a number of {len(text)} digits", problem_mark=node.start_mark)
    return int(text)


_JobFileLoader.add_constructor("tag:yaml.org,2002:int", _construct_decimal)


def channels_on_file_systems(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the channels that a judged job file has on file systems."""
    channels = fields.get("channels") or ()
    named = channels.items() if isinstance(channels, Mapping) else [(each.get("name"), each) for each in channels]
    return [str(name) for name, each in named if isinstance(each, Mapping) and {"fsx", "efs"} & {*each}]
