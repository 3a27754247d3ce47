"""The description of a training in short texts, such as its arguments, hyperparameters, script and data.

Each checkpoint holds the description of the training that made it. A resume compares it with its own and reports the
differences. A difference is no error, because a longer training, or a new path of the data, changes arguments as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_LONGEST_TEXT = 400
_MOST_SCRIPT_BYTES = 16 * 2**20
_MOST_DIGESTED_BYTES = 2**20
_MOST_CHANGES = 20
_MOST_PLAIN_ITEMS = 20
_MOST_FILES_OF_CODE = 100
_MOST_OBJECTS = 100
_MOST_GROUPS = 8
_NOT_THE_SCRIPTS = ("site-packages", "dist-packages")
_HIDDEN = "***"
_SECRET_WORDS = frozenset(
    {"apikey", "auth", "credential", "credentials", "pass", "passphrase", "passwd", "password", "pwd", "secret"}
)
_SECRET_AT_THE_END = frozenset({"key", "token"})  # `max_token_length` and `num_key_value_heads` are none
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_PASSWORD_IN_URL = re.compile(r"(?<=//)[^/@\s]+(?=@)")
_RANK_OPTION = re.compile(r"--?((local|node)[-_]rank|world[-_]size)")


def describe_process(
    *, main: Any = None, arguments: Sequence[str] | None = None, environment: Mapping[str, str]
) -> dict[str, str]:
    """Describe the training by the start of its process.

    A notebook has no script, and its process has arguments of the notebook server's. There only the environment counts.

    Args:
        main: The module `__main__`, by default this process's.
        arguments: The script's arguments, by default this process's.
        environment: The process's environment.
    """
    hyperparameters, from_hyperparameters = _hyperparameters(environment)
    described = {f"hyperparameter {name}": described_value(name, value) for name, value in hyperparameters.items()}
    script = getattr(sys.modules.get("__main__") if main is None else main, "__file__", None)
    if script is None:
        return described
    own = list(sys.argv[1:] if arguments is None else arguments)
    if from_hyperparameters and own[-len(from_hyperparameters) :] == from_hyperparameters:
        own = own[: -len(from_hyperparameters)]  # each of them is described by its name
    described["command line"] = text_of(shlex.join(_without_secrets(_without_rank(own))))
    folder = Path(script).absolute().parent
    for name in _code_in(folder, Path(script).name):
        content = _content(folder / name)
        if content is not None:
            described[f"code of {name}"] = f"with the SHA-256 {hashlib.sha256(content).hexdigest()[:12]}..."
    return described


def describe_settings(state: Any, name: str = "state") -> Iterator[tuple[str, str]]:
    """Describe the settings of the optimizers and schedules in a state, before anything is restored into it.

    They come back with the checkpoint, so a script with other settings would go on with the old ones.

    Args:
        state: The state of a training, or a part of it.
        name: The path of the state.
    """
    if isinstance(state, (Mapping, list, tuple)):
        items = state.items() if isinstance(state, Mapping) else enumerate(state)
        # Where there are more than this, they are plain values.
        for key, value in items if len(state) <= _MOST_OBJECTS else ():
            yield from describe_settings(value, f"{name}[{key!r}]")
    elif isinstance(groups := getattr(state, "param_groups", None), list):
        for number, group in enumerate(groups[:_MOST_GROUPS]):
            of_group = "" if len(groups) == 1 else f".param_groups[{number}]"
            for key, value in _settings_of_group(group).items():
                yield f"{name}{of_group}.{key}", text_of(value)
    elif callable(getattr(state, "get_last_lr", None)):
        for key, value in _plain_values(vars(state)).items():
            # What begins with an underscore, and the epoch, change from step to step.
            if not key.startswith("_") and key != "last_epoch":
                yield f"{name}.{key}", text_of(value)


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List the differences, one text for each. Empty where there was no description before."""
    if not before:
        return []
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    listed = [f"{name} was {before.get(name, 'not there')} and is {now.get(name, 'not there')}" for name in names]
    if len(listed) > _MOST_CHANGES:
        listed[_MOST_CHANGES:] = [f"and {len(listed) - _MOST_CHANGES} more"]
    return listed


def is_of_the_same_start(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Say whether two trainings are of one script with one command line. False where that is not described."""

    def start(made_by: Mapping[str, str]) -> dict[str, str]:
        return {name: made_by[name] for name in made_by if name == "command line" or name.startswith("code of ")}

    return bool(start(one)) and start(one) == start(other)


def text_of(value: Any) -> str:
    """Give a value as a short text. Of a long one its beginning and a digest."""
    text = value if isinstance(value, str) else json.dumps(_without_secret_values(value), default=str, sort_keys=True)
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[: _LONGEST_TEXT - 40]}... (SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:12]}...)"


def array_text(array: Any) -> str:
    """Describe an array by shape, dtype and a digest of its beginning and end. Anything else by its type and length.

    The digest covers a mebibyte at most. It shows other data, but not every single changed value.
    """
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None or dtype is None:
        return f"{type(array).__name__} {_size(array) if shape is None else tuple(shape)}".strip()
    described = f"{tuple(shape)} {dtype}"
    try:
        on_the_host = getattr(getattr(array, "device", None), "type", None) == "cpu"
        flat = memoryview(array.detach().numpy() if on_the_host else array).cast("B")
    except (TypeError, ValueError, BufferError, RuntimeError):
        return described  # on a GPU, not contiguous, or of a dtype without a buffer
    half = _MOST_DIGESTED_BYTES // 2
    parts = (flat,) if len(flat) <= 2 * half else (flat[:half], flat[-half:])
    digest = hashlib.blake2b(digest_size=6)
    for part in parts:
        digest.update(part)
    return f"{described} {digest.hexdigest()}"


def _size(data: Any) -> str:
    if data is None or isinstance(data, (str, Path)):
        return str(data or "")
    try:
        return str(len(data))
    except TypeError:  # it has none, or does not know it
        return ""


def _settings_of_group(group: Mapping[str, Any]) -> dict[str, Any]:
    settings = _plain_values(group)
    begun_with = settings.pop("initial_lr", None)  # a schedule changes the other one
    return settings if begun_with is None else {**settings, "lr": begun_with}


def _plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= _MOST_PLAIN_ITEMS and all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def _code_in(folder: Path, script: str) -> list[str]:
    """Give the files of the script's own code.

    They are the script and the modules that it has imported from its folder.
    """
    above = str(folder) + os.sep
    files = {script}
    for name, module in list(sys.modules.items()):
        # Not by getattr: a module that imports its parts lazily would begin to.
        path = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(path, str) or not path.startswith(above) or name.partition(".")[0] == "spotkeep":
            continue
        place = Path(path[len(above) :])
        if not any(part in _NOT_THE_SCRIPTS or part.startswith(".") for part in place.parts):
            files.add(place.as_posix())
    return sorted(files)[:_MOST_FILES_OF_CODE]


def _hyperparameters(environment: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Give the job's hyperparameters, and the arguments that the runner has made of them."""
    try:
        named, arguments = (
            json.loads(environment.get("SM_HPS", "{}")),
            json.loads(environment.get("SM_USER_ARGS", "[]")),
        )
    except (ValueError, RecursionError):
        return {}, []
    own = {} if not isinstance(named, dict) else {name: named[name] for name in named if "sagemaker_" not in name}
    return own, [str(word) for word in arguments] if isinstance(arguments, list) else []


def _without_rank(arguments: Sequence[str]) -> Iterator[str]:
    """Leave out the number of the rank and that of all ranks, which a launcher passes."""
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if _RANK_OPTION.fullmatch(name):
            if not equals:
                next(words, None)
            continue
        yield word


def _without_secrets(arguments: Iterator[str]) -> Iterator[str]:
    """Hide the values of `--token X`, `--token=X`, `db.password=X`, and passwords in addresses."""
    hides_next = False
    for word in arguments:
        name, equals, value = word.partition("=")
        is_option = word.startswith("-")
        if hides_next and not is_option:
            yield _HIDDEN
        elif equals:
            yield f"{name}={described_value(name, value)}"
        else:
            yield _PASSWORD_IN_URL.sub(_HIDDEN, word)
        hides_next = is_option and not equals and _is_secret(name)


def described_value(name: str, value: Any) -> str:
    """Give a value as a short text, unless it is called as secrets are."""
    return _HIDDEN if _is_secret(name) else _PASSWORD_IN_URL.sub(_HIDDEN, text_of(value))


def _without_secret_values(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(name): _HIDDEN if _is_secret(str(name)) else _without_secret_values(item)
            for name, item in value.items()
        }
    return [_without_secret_values(item) for item in value] if isinstance(value, (list, tuple)) else value


def _is_secret(name: str) -> bool:
    words = [word.lower() for word in _WORDS.findall(name)]
    return bool(words) and (words[-1] in _SECRET_AT_THE_END or not _SECRET_WORDS.isdisjoint(words))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= _MOST_SCRIPT_BYTES else None
    except OSError:
        return None
