"""The schemas of the JSON that commands print, from all documents that the tests have seen.

`python -m tests.spotkeep_cli.json_schemas` runs the tests and writes docs/json/ and docs/json.md. Without it
the tests compare each document of a command with its schema.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import typer.main

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "json"
PAGE: Final = ROOT / "docs" / "json.md"
SEEN: Final = "SPOTKEEP_TESTS_SEE_JSON"
"""The variable that names a folder, in which documents are kept instead of compared."""
WITHOUT_JSON: Final = {
    "cdk": "is the CDK's own command line",
    "help": "prints a page of the documentation",
    "import": "prints a job file, which is YAML",
    "init": "writes files and names them",
    "local ec2 console": "prints an instance's console",
    "local image": "keeps a setting",
    "logs": "prints lines of a job, and `--raw` prints them as the job wrote them",
    "schema": "prints JSON without the option",
    "shell": "opens a terminal",
}
"""The commands without the option `--json`, and the reason of each."""
REPORT_ON_A_COMMAND: Final = "rehearse -- COMMAND"
"""The form of `rehearse` that judges a command without a job file. Its document has a schema of its own."""
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NAMED_BY_DATA: Final = frozenset({
    "answers", "channels", "changes", "compared_by_value", "counts", "environment", "hyperparameters", "median_seconds",
    "metrics", "parameters", "points", "policies", "quotas", "request", "runs", "seconds", "surprises", "tags",
    "unreadable", "values", "wanted", "zones",
})  # fmt: skip
"""Mappings whose keys are data."""


def commands() -> dict[str, Any]:
    """Return the visible commands by their words."""
    from spotkeep_cli.main import app

    def below(command: Any, words: str) -> Iterator[tuple[str, Any]]:
        for word, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                yield from below(inner, f"{words} {word}".strip())
        if not hasattr(command, "commands"):
            yield words, command

    return dict(below(typer.main.get_command(app), ""))


def check(arguments: Sequence[str], printed: str) -> None:
    """Compare the document that a command line printed with its schema, or keep it for a new one."""
    command = _command_of(arguments)
    if command is None or "--json" not in arguments or not printed.strip():
        return
    check_document(command, json.loads(printed))


def check_document(command: str, document: Any) -> None:
    """Compare a document of a command with its schema, or keep it for a new one. A report file is such a document."""
    if isinstance(document, dict) and document.get("ok") is False and "error" in document:
        command = "error"
    if folder := os.environ.get(SEEN):
        with (Path(folder) / f"{file_name(command)}-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(document) + "\n")
        return
    errors = sorted(_validator(command).iter_errors(document), key=lambda error: list(error.absolute_path))
    assert not errors, (
        f"spotkeep {command} --json: {errors[0].json_path} {errors[0].message[:300]}\n"
        "`python -m tests.spotkeep_cli.json_schemas` adds the new form to docs/json/"
    )


def file_name(command: str) -> str:
    """Return the name of a command's schema without its ending."""
    return re.sub(r"[ -]+", "-", command).lower()


@functools.cache
def _validator(command: str) -> Any:
    path = FOLDER / f"{file_name(command)}.schema.json"
    assert path.exists(), f"{path} is missing: python -m tests.spotkeep_cli.json_schemas"
    return jsonschema.Draft202012Validator(json.loads(path.read_text()))


@functools.cache
def _words() -> tuple[str, ...]:
    return tuple(sorted(commands(), key=len, reverse=True))


def _command_of(arguments: Sequence[str]) -> str | None:
    plain = " ".join(word for word in arguments if not word.startswith("-"))
    aliases = {"ls": "ps", "list": "ps", "validate": "doctor", "cancel": "stop", "run": "launch", "submit": "launch"}
    first = plain.partition(" ")[0]
    if first in aliases:
        return aliases[first]
    return next((name for name in _words() if plain == name or plain.startswith(f"{name} ")), None)


@functools.cache
def _records() -> dict[str, tuple[Any, frozenset[str], frozenset[str]]]:
    """Return the types of records by their names, each with its required fields and all fields in JSON."""
    from spotkeep_jobs.record.deployment_records import Finding
    from spotkeep_jobs.record.record import Attempt, Notification, Pool, Run, TimelineEntry
    from spotkeep_jobs.record.schedule import Schedule
    from spotkeep_jobs.record.sweep import Sweep, Trial

    found = {}
    for record in (Run, Sweep, Trial, Attempt, TimelineEntry, Notification, Schedule, Pool, Finding):
        schema = record.model_json_schema(mode="serialization")
        found[record.__name__] = (record, frozenset(schema.get("required", ())), frozenset(schema["properties"]))
    return found


def _record_of(names: Iterable[str]) -> str | None:
    """Return the name of the record that an object with these fields is, perhaps with a few more."""
    names = frozenset(names)
    fits = [
        (len(names & fields), name)
        for name, (_, required, fields) in _records().items()
        if required - {"token"} <= names and len(names - fields) <= 8
    ]
    return max(fits)[1] if fits else None


def definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions of the records that a schema refers to."""
    referred = set(re.findall(r"#/\$defs/(\w+)", json.dumps(schema)))
    found: dict[str, Any] = {}
    for name in sorted(referred & set(_records())):
        own = _records()[name][0].model_json_schema(mode="serialization")
        found |= own.pop("$defs", {})
        found[name] = own | {"required": [field for field in own.get("required", ()) if field != "token"]}
    return found


def form_of(documents: Iterable[Any], *, key: str = "") -> dict[str, Any]:
    """Return the schema of some documents. Fields that each of them has are required."""
    documents = list(documents)
    kinds: dict[str, list[Any]] = {}
    for document in documents:
        record = _record_of(document) if isinstance(document, dict) else None
        kinds.setdefault(record or _kind(document), []).append(document)
    if "integer" in kinds and "number" in kinds:
        kinds["number"] += kinds.pop("integer")
    forms = []
    for kind, found in sorted(kinds.items()):
        form: dict[str, Any] = {"type": kind}
        if kind in _records():
            more = sorted({name for each in found for name in each} - _records()[kind][2])
            form = {"$ref": f"#/$defs/{kind}"}
            if more:
                form["properties"] = {
                    name: form_of([each[name] for each in found if name in each], key=name) for name in more
                }
        if kind == "array":
            items = [item for each in found for item in each]
            if items:
                form["items"] = form_of(items)
        elif kind == "object":
            names = list(dict.fromkeys(name for each in found for name in each))
            if key in _NAMED_BY_DATA or any(not re.fullmatch(r"[a-z_][A-Za-z0-9_]*", name) for name in names):
                values = [value for each in found for value in each.values()]
                form["additionalProperties"] = form_of(values) if values else True
            else:
                form["properties"] = {
                    name: form_of([each[name] for each in found if name in each], key=name) for name in sorted(names)
                }
                form["required"] = sorted(name for name in names if all(name in each for each in found))
        forms.append(form)
    if forms == [{"type": "null"}]:
        return {}
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _kind(document: Any) -> str:
    if document is None:
        return "null"
    if isinstance(document, bool):
        return "boolean"
    return {int: "integer", float: "number", str: "string", list: "array", dict: "object"}[type(document)]


def page(schemas: dict[str, dict[str, Any]]) -> str:
    """Return the page that lists the schemas."""
    rows = []
    summaries = {name: (command.help or "").strip().partition("\n")[0] for name, command in commands().items()}
    summaries[REPORT_ON_A_COMMAND] = "Judge a command on this machine, without a job file and without AWS"
    for name, summary in sorted(summaries.items()):
        if name in WITHOUT_JSON:
            continue
        file = f"{file_name(name)}.schema.json"
        fields = ", ".join(f"`{field}`" for field in _first_fields(schemas[file_name(name)]))
        rows.append(f"| `{name}` | {summary.rstrip('.')} | {fields} | [{file}](json/{file}) |")
    without = [f"| `{name}` | {reason} |" for name, reason in sorted(WITHOUT_JSON.items())]
    return _PAGE.format(rows="\n".join(rows), without="\n".join(without))


def _first_fields(schema: dict[str, Any]) -> list[str]:
    """Return the records of a document, or else the fields that it always has."""
    if records := sorted(set(re.findall(r'"#/\$defs/([A-Z]\w+)"', json.dumps({**schema, "$defs": {}})))):
        return records
    form = schema.get("anyOf", [schema])[0]
    return list(form.get("items", form).get("required", ())[:8])


_PAGE: Final = """# JSON of the commands

With `--json` a command prints one JSON document on standard output. Progress, questions and warnings go to standard
error. The exit codes are [those of the command line](command-line.md#for-scripts).

A refused or failed command prints `{{"ok": false, "error": ..., "problems": [...]}}`. Each problem has `field`,
`found`, `problem` and `fix`. Its schema is [error.schema.json](json/error.schema.json).
A report file of a rehearsal is the document that its command prints, so it has the same schema.

Times are ISO 8601 in UTC, durations are seconds, and money is in US dollars. A later version may add fields. Tests
compare each document that they see with the schema of its command.

| command | does | records in it, or fields that are always there | schema |
|---|---|---|---|
{rows}

These commands have no option `--json`.

| command | reason |
|---|---|
{without}
"""


def main() -> None:
    """Run the tests, and write the schemas of all documents that they see.

    With arguments, these are pytest's, and the documents of earlier runs count too.
    """
    seen = ROOT / ".spotkeep" / "tests" / "json"
    if not sys.argv[1:]:
        shutil.rmtree(seen, ignore_errors=True)
    seen.mkdir(parents=True, exist_ok=True)
    quick = ["-m", "not long", "tests/spotkeep_cli", "tests/spotkeep_rehearsal", "tests/pages"]
    local = ["-m", "long", *(f"tests/spotkeep_cli/commands/{name}.py" for name in ("test_local", "test_local_ec2"))]
    real = ["-m", "long", "tests/end_to_end/test_rehearsal.py"]
    for chosen in [sys.argv[1:]] if sys.argv[1:] else (quick, local, real):
        run_tests(chosen, seen=seen)
    write(seen)


def run_tests(chosen: Sequence[str], *, seen: Path) -> None:
    """Run tests that keep the documents that they see. A failed test has printed its documents too.

    Args:
        chosen: The arguments of pytest.
        seen: A folder for the documents.
    """
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", *chosen],
        cwd=ROOT, env=os.environ | {SEEN: str(seen)}, check=False,
    )  # fmt: skip


def write(seen: Path) -> None:
    """Write the schemas of the documents in a folder, and the page.

    Args:
        seen: A folder with a file a command, a document a line.
    """
    documents: dict[str, list[Any]] = {}
    for path in sorted(seen.glob("*.jsonl")):
        documents.setdefault(path.stem.rpartition("-")[0], []).extend(map(json.loads, path.read_text().splitlines()))
    FOLDER.mkdir(exist_ok=True)
    for name, found in sorted(documents.items()):
        form = form_of(found)
        schema = {"$schema": _DIALECT, "title": f"spotkeep {name} --json", **form, "$defs": definitions(form)}
        (FOLDER / f"{name}.schema.json").write_text(json.dumps(schema, indent=1) + "\n")
    PAGE.write_text(page(written_schemas()))


def written_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of docs/json/ by their names."""
    return {path.name.removesuffix(".schema.json"): json.loads(path.read_text()) for path in FOLDER.glob("*.json")}


if __name__ == "__main__":
    main()
