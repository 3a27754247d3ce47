"""The reference page of the job file, from its JSON schema. The fields that most jobs need come first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).parents[1] / "job.schema.json"

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Every job": ("name", "command", "source", "instance_type", "instance_types", "capacity", "max_run", "max_wait"),
    "Data and parameters": (
        "channels", "hyperparameters", "arguments", "environment", "secrets", "checkpoints", "checkpoint_prefix",
        "checkpoint_channel",
    ),
    "Image and packages": ("framework", "image", "algorithm", "install", "setup"),
    "Cost and time": ("max_cost", "deadline", "work", "restart", "max_total_run", "pause_at_step"),
    "Metrics and notifications": (
        "metrics", "notify", "stuck", "checkpoint_stale", "waiting_too_long", "mlflow", "wandb", "debug",
    ),
    "Machines and retries": (
        "instance_count", "distributed", "volume_size_gb", "ladder", "longest_wait", "spot_only", "max_attempts",
        "script_retries", "keep_alive",
    ),
    "EC2 fleets": (
        "backend", "nodes", "nodes_wait", "network", "volume", "max_price", "runs", "on_demand_base", "rebalance",
        "instance_metadata",
    ),
    "Queues": ("queue", "share", "priority"),
    "Many launches": ("sweep", "schedule"),
    "People and records": ("owner", "team", "tags", "run", "token"),
}  # fmt: skip
"""The fields of the job file, by need. A test compares them with the schema."""

_INTRODUCTION = """# Fields of the job file

[The schema](../job.schema.json) writes this page, and editors complete a job file with it.
[The page of the job file](../job-file.md) explains the fields. Most jobs need the first groups alone.
"""


def job_file_page() -> str:
    """Return the page as Markdown."""
    schema = json.loads(SCHEMA.read_text())
    definitions = schema["$defs"]
    lines = [_INTRODUCTION]
    for group, fields in GROUPS.items():
        lines += [f"## {group}\n", *_table(fields, schema["properties"], schema.get("required", ()), definitions), ""]
    lines.append("## Values with fields of their own\n")
    for name, definition in sorted(definitions.items()):
        if "properties" in definition:
            lines += [f"### {name}\n", *_paragraph(definition)]
            required = definition.get("required", ())
            lines += [*_table(tuple(definition["properties"]), definition["properties"], required, definitions), ""]
    return "\n".join(lines)


def _table(
    fields: tuple[str, ...], schemas: Mapping[str, Any], required: tuple[str, ...], definitions: Mapping[str, Any]
) -> Iterator[str]:
    yield "| field | value | default | description |"
    yield "|---|---|---|---|"
    for field in fields:
        schema = schemas[field]
        default = "required" if field in required else _default(schema)
        description = " ".join(schema.get("description", "").split())
        example = "".join(f" Example: {_code(example)}" for example in schema.get("examples", ())[:1])
        yield f"| `{field}` | {_value(schema, definitions)} | {default} | {_cell(description)}{example} |"


def _default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    return "" if default is None else _code(default)


def _value(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the kinds of value that a field takes, in words."""
    return ", ".join(dict.fromkeys(_kinds(schema, definitions)))


def _kinds(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    if "anyOf" in schema:
        for each in schema["anyOf"]:
            yield from _kinds(each, definitions)
    elif "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if "properties" in definitions[name]:
            yield f"[{name}](#{name.lower()})"
        else:
            yield from _kinds(definitions[name], definitions)
    elif "enum" in schema:
        yield from map(_code, schema["enum"])
    elif "const" in schema:
        yield _code(schema["const"])
    elif schema.get("type") == "array":
        yield f"list of {_value(schema.get('items', {}), definitions) or 'any'}"
    elif isinstance(types := schema.get("type", ()), str):
        yield from [] if types == "null" else [_WORDS[types]]
    else:
        yield from (_WORDS[each] for each in types if each != "null")


_WORDS = {
    "string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "object": "mapping",
}  # fmt: skip


def _paragraph(definition: Mapping[str, Any]) -> Iterator[str]:
    if "description" in definition:
        yield f"{' '.join(definition['description'].split())}\n"


def _code(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"`{text.replace('|', chr(92) + '|')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")
