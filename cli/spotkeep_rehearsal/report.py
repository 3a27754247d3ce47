"""The report of a rehearsal as text, as JSON and as a JUnit file. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from spotkeep_rehearsal.evidence import RunFacts
from spotkeep_rehearsal.status_line import wrapped
from spotkeep_rehearsal.verdict import LossFacts, Status, Verdict

_COUNTED = {"steps": "steps", "lines": "counted lines", "time": "seconds"}


def text_of(verdict: Verdict) -> list[str]:
    """Return the report for people, line by line."""
    lines: list[str] = []
    if verdict.losses:
        lines += ["", "What was taken, and what it cost", *_table(verdict)]
    lines += ["", *wrapped(f"{verdict.status.value}  {verdict.headline}", hanging="    ")]
    for reason in verdict.reasons:
        first, *rest = reason.splitlines() or [""]
        lines += wrapped(first, indent="  - ", hanging="    ")
        for line in rest:
            lines += wrapped(line.strip(), indent="    " + line[: len(line) - len(line.lstrip())], hanging="    ")
    for remark in verdict.remarks:
        lines += wrapped(remark, indent="  note: ", hanging="    ")
    if verdict.change:
        lines += ["", *wrapped(verdict.change, indent="Change: ", hanging="    ")]
    return lines


def loss_headings(verdict: Verdict) -> list[str]:
    """Return the headings of the table of losses."""
    return [f"at ({_COUNTED[verdict.counted_by]})", "notice", "files left", "read", "went on from", "repeated"]


def loss_rows(verdict: Verdict) -> list[list[str]]:
    """Return the table of losses, a row each."""
    return [
        [
            f"{loss.seconds:.1f} s" if loss.at_step is None else str(loss.at_step),
            "SIGTERM" if loss.notice else "none",
            str(len(loss.found_files)),
            "?" if loss.read_files is None else str(len(loss.read_files)),
            _from(loss),
            "?" if loss.repeated is None else str(loss.repeated),
        ]
        for loss in verdict.losses
    ]


def _table(verdict: Verdict) -> list[str]:
    rows = [loss_headings(verdict), *loss_rows(verdict)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows]


def _from(loss: LossFacts) -> str:
    return loss.going.value if loss.resumed_from in (None, 0) else str(loss.resumed_from)


def next_command(verdict: Verdict, *, words: Sequence[str], options: Sequence[str]) -> tuple[str, str]:
    """Return the next command, and its purpose."""
    again = shlex.join(["spotkeep", "rehearse", *options, "--", *words])
    if verdict.status is Status.PASS:
        script = next((word for word in words if word.endswith(".py")), None)
        if script is not None:
            return shlex.join(["spotkeep", "init", script]), "writes a job file for AWS"
        return "spotkeep init", "writes an app for your account"
    return again, "judges it again"


def document_of(verdict: Verdict, *, words: Sequence[str], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the report as the JSON document that programs read.

    Args:
        verdict: The verdict.
        words: The command.
        facts: What else is known of the rehearsal, as JSON values.
    """
    return {
        "verdict": verdict.status.value,
        "headline": verdict.headline,
        "command": list(words),
        "reasons": list(verdict.reasons),
        "remarks": list(verdict.remarks),
        "change": verdict.change,
        "counted_by": verdict.counted_by,
        "losses": [
            {
                "notice": loss.notice,
                "after_seconds": round(loss.seconds, 3),
                "at_step": loss.at_step,
                "resumed_from": loss.resumed_from,
                "repeated": loss.repeated,
                "going": loss.going.value,
                "found_files": list(loss.found_files),
                "read_files": None if loss.read_files is None else list(loss.read_files),
                "seconds_to_catch_up": None if loss.seconds_to_catch_up is None else round(loss.seconds_to_catch_up, 3),
            }
            for loss in verdict.losses
        ],
        **facts,
    }


def run_document(run: RunFacts) -> dict[str, Any]:
    """Return what JSON says of a run."""
    return {
        "name": run.name,
        "lives": [
            {"ending": life.ending.value, "seconds": round(life.seconds, 3), "exit_code": life.exit_code}
            for life in run.lives
        ],
        "files": {name: file.sha256 for name, file in sorted(run.files.items())},
    }


def junit_of(verdict: Verdict, *, words: Sequence[str], seconds: float) -> bytes:
    """Return a JUnit file with the verdict as one test, and a test for each loss."""
    failed, unknown = verdict.status is Status.FAIL, verdict.status is Status.NOT_JUDGED
    suite = ET.Element(
        "testsuite",
        name="spotkeep rehearse",
        tests=str(1 + len(verdict.losses)),
        failures=str(int(failed)),
        errors=str(int(unknown)),
        time=f"{seconds:.3f}",
    )
    case = ET.SubElement(
        suite, "testcase", classname="spotkeep.rehearse", name=_clean(shlex.join(words)), time=f"{seconds:.3f}"
    )
    if verdict.status is not Status.PASS:
        kind = "failure" if failed else "error"
        element = ET.SubElement(case, kind, message=_clean(verdict.headline), type=verdict.status.value)
        element.text = _clean("\n".join([*verdict.reasons, *([verdict.change] if verdict.change else [])]))
    for number, loss in enumerate(verdict.losses, start=1):
        notice = "after a notice" if loss.notice else "without notice"
        name = f"interruption {number}, {notice}: {loss.going.value}"
        ET.SubElement(suite, "testcase", classname="spotkeep.rehearse", name=name, time=f"{loss.seconds:.3f}")
    output = ET.SubElement(suite, "system-out")
    output.text = _clean("\n".join(text_of(verdict)))
    return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))


def _clean(text: str) -> str:
    """Leave out the characters that XML has not."""
    return "".join(character for character in text if character in "\t\n" or character >= " ")
