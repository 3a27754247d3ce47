"""Finds the parts of a command that only a shell gives an effect. Pure.

A text of one line is split into words, and no shell reads it. So a part that only a shell gives an effect must not pass
as a word. The command would run with wrong arguments, and end well.

Source: "Basic Shell Features" in the Bash Reference Manual.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
"""The programs that read a text as a shell does. The runner knows the same ones (`spotkeep.runner.supervision`)."""
_BLANKS: Final = " \t"
_OPERATORS: Final = re.compile(r"&&|\|\||;;|>>|<<|[0-9]*>&[0-9]|[;&|<>]")
_NAMED: Final = r"\{[#!]?(?:[A-Za-z_]\w*|[0-9@*#?$!-]+)(?:\[[^\]]*\])?[}:%#/^,@+=?-]"
_VALUES: Final = re.compile(rf"\$(?:[A-Za-z_]\w*|[0-9@*#?!$-]|[(\[]|['\"]|{_NAMED})", re.ASCII)
_VALUES_IN_QUOTES: Final = re.compile(rf"\$(?:[A-Za-z_]\w*|@|[(\[]|{_NAMED})", re.ASCII)
_ANSI_QUOTED: Final = re.compile(r"\$'(?:\\.|[^'\\])*'", re.DOTALL)
_HERE_DOCUMENT: Final = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([^\s;&|<>()'\"]+))")
SHELLS_OWN: Final = frozenset({
    "!", ".", "[[", "alias", "builtin", "case", "cd", "declare", "eval", "exec", "exit", "export", "for", "function",
    "if", "let", "local", "popd", "pushd", "read", "readonly", "return", "select", "set", "shopt", "source", "trap",
    "typeset", "ulimit", "umask", "unset", "until", "wait", "while", "{",
})  # fmt: skip
"""Words that a shell does itself, or reads as its grammar, but those that are programs as well (`echo`, `test`)."""
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_SHELL_SWITCH: Final = re.compile(r"-[A-Za-z]*c")
_BEFORE_A_PROGRAM: Final = frozenset({"!", "{", "do", "elif", "else", "exec", "if", "then", "time", "until", "while"})
_ENDS: Final = ";&|()<>\n"
_IN_THE_BACKGROUND: Final = re.compile(r"(?<![&|;<>])&(?![&>])")
_CLOSES: Final = frozenset({"done", "esac", "fi", "}"})
_NO_WORK: Final = frozenset({*_CLOSES, ":", "date", "disown", "echo", "exit", "jobs", "printf", "true"})
_ASKS: Final = re.compile(r"\s*(if|elif|while|until|!)\s")
_WORKS: Final = re.compile(
    r"python[\d.]*|sudo|pip[\d.]*|torchrun|accelerate|deepspeed|mpirun|srun|uv|conda|mamba|(ba)?sh|apt(-get)?|yum|dnf|git|aws|"
    r"curl|wget|tar|unzip|make|cp|mv|.*\.(sh|py)"
)
"""Programs with an exit code that matters, where `&&` stands behind one.

Others (`test`, `grep`) may only ask something.
"""
_OPTION: Final = re.compile(r"[ \t]*--?[A-Za-z]\S*")
_SETTING: Final = re.compile(r"[ \t]+[+~]*[\w.@/-]+=")
_SETTING_ALONE: Final = re.compile(r"[ \t]*([+~]*[\w.@/-]+=[^\s'\"`$;&|()<>]*)[ \t]*")
_QUOTES_OF_WRITERS: Final = "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b\u00ab\u00bb"
_DASHES_OF_WRITERS: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_HIDDEN: Final = "\u00a0\u200b\u202f\u2060\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
_HYPERPARAMETERS: Final = re.compile(
    r"\$[@*1-9]|\$\{(?:[@*]|[1-9])|SM_(?:HPS?\b|HP_|USER_ARGS|TRAINING_ENV)|hyperparameters\.json"
)


def lines_of(text: str) -> str:
    """Return a text with line feeds alone for its line ends, and without empty lines before and behind it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    while lines and not lines[0].strip():
        del lines[0]
    while lines and not lines[-1].strip():
        del lines[-1]
    return "\n".join(lines)


def one_line_of(text: str) -> str | None:
    """Return a command of one line. None for a block of several.

    A line that ends with a backslash goes on with the next. So does one below which only options (`--lr 0.1`) and
    indented settings (`model=big`) stand. No program begins so, and in YAML `>` leaves the ends of indented lines.
    """
    body = _without_continuations(lines_of(text))
    first, *others = [line for line in body.split("\n") if line.strip()] or [""]
    margin = len(first) - len(first.lstrip())
    goes_on = (_OPTION.match(each) or (_SETTING.match(each, margin) and not each[:margin].strip()) for each in others)
    return None if not all(goes_on) else " ".join([first.strip(), *(each.strip() for each in others)])


def is_block(text: str) -> bool:
    """Return True if a text is a block for bash.

    A block has several lines, or one line that is ended and needs a shell. YAML ends each text of `|` and `>` with a
    line end. So one line that needs no shell is a command as any other.
    """
    line = one_line_of(text)
    return line is None or (_is_ended(text) and why_a_shell(line) is not None)


def _is_ended(text: str) -> bool:
    return "\n" in text or "\r" in text


def _without_continuations(body: str) -> str:
    """Return lines without the line ends that a backslash takes away."""
    ends = [at for at, _, _ in _read_by_a_shell(body) if body.startswith("\\\n", at)]
    return "".join(
        body[begin:end] for begin, end in zip([0, *(at + 2 for at in ends)], [*ends, len(body)], strict=True)
    )


def option_without_a_program(block: str) -> str | None:
    """Return the place where a line of a block begins with an option, in words. None if there is no such line.

    Options of a list in parentheses, and patterns of `case`, are left out.
    """
    open_parentheses = 0
    left_out: list[tuple[int, int]] = []
    for at, _, starts in _read_by_a_shell(block, left_out=left_out):
        open_parentheses = max(0, open_parentheses + {"(": 1, ")": -1}.get(block[at], 0))
        if block[at] != "-" or not starts or open_parentheses:
            continue
        option = _OPTION.match(block, at)
        above, _, before = block[:at].rpartition("\n")
        is_comment = any(end == len(above) for _, end in left_out)
        goes_on = above.endswith("\\") and not is_comment
        if option is not None and ")" not in option[0] and not before.strip() and not goes_on:
            number = above.count("\n") + 2 if "\n" in block[:at] else 1
            return f"begins line {number} with the option {option[0]}, and the line above has ended"
    return None


def setting_at_the_end(block: str) -> str | None:
    """Name the setting (`model=big`) that is the last line of a block. The program above would run without it."""
    above, _, last = _without_continuations(block).rstrip().rpartition("\n")
    setting = _SETTING_ALONE.fullmatch(last)
    return f"ends with {setting[1][:80]} on a line of its own, which no program gets" if above and setting else None


def why_a_shell(line: str) -> str | None:
    """Name the part of a text of one line that only a shell gives its effect. None where all of it is words."""
    runs_a_shell: bool | None = None
    for at, quoted, starts in _read_by_a_shell(line):
        character = line[at]
        if character == "`":
            return "holds a backquote"
        if character == "$":
            value = (_VALUES_IN_QUOTES if quoted else _VALUES).match(line, at)
            if value is not None and quoted and runs_a_shell is None:
                runs_a_shell = _runs_a_shell(line)
            # The shell that the command names gives values to the names in its own text.
            if value is not None and not (quoted and runs_a_shell):
                return f"holds {value[0]}{_closing(value[0])}, which only a shell replaces by a value"
        elif quoted:
            continue
        elif character == "#" and starts:
            return "holds a comment (#)"
        elif character == "(" and not line[:at].strip():
            return "begins with ("
        elif (operator := _OPERATORS.match(line, at)) is not None:
            return f"holds {operator[0]} outside of quotes"
    first = _first_word(line)
    if first in SHELLS_OWN:
        return f"begins with {first}, which is no program but a part of a shell"
    if _ASSIGNMENT.match(first):
        return f"begins with the assignment {first[:80]}"
    return None


def misprint(text: str) -> str | None:
    """Name a character that only looks like one of a command line. None if there is no such character.

    Word processors, chat programs and web pages put them there. In quotes they are a part of the word.
    """
    for at, quoted, starts in _read_by_a_shell(text):
        character = text[at]
        code = f"(U+{ord(character):04X})"
        if quoted:
            continue
        if character in _QUOTES_OF_WRITERS and (starts or text[at - 1] == "="):
            return f"holds the typographic quote {character} {code}, which quotes nothing"
        if character in _DASHES_OF_WRITERS and starts and re.match(r"\S", text[at + 1 :]):
            return f"holds a word that begins with the dash {character} {code}, which is no hyphen"
        if character in _HIDDEN:
            return f"holds a blank or an invisible character {code} that separates no words"
        if character == "\\" and text[at + 1 : at + 2] in {*_BLANKS} and (starts or _ends_its_line(text, at + 1)):
            return "holds a backslash with a blank behind it, which continues no line (`>` in YAML joins lines)"
    return None


def reads_hyperparameters(block: str) -> bool:
    """Return True if a block for bash uses the hyperparameters, which are its arguments and in its environment."""
    return _HYPERPARAMETERS.search(block) is not None


def programs_of(command: str | Sequence[str]) -> list[tuple[str, ...]]:
    """Return the words of each program that a command runs, as far as they can be read without running it.

    Of a block, words of the shell's grammar and assignments before a program are left out, and quoted words lose
    their quotes.

    Args:
        command: A block of lines for bash, or the words of one program.

    Returns:
        Programs of one word at least each.
    """
    if not isinstance(command, str):
        return [tuple(command)] if command else []
    left_out: list[tuple[int, int]] = []
    block = _without_continuations(command)
    for _ in _read_by_a_shell(block, left_out=left_out):
        pass
    return _programs(_without(block, left_out))


def _without(block: str, left_out: list[tuple[int, int]], *, begin: int = 0) -> str:
    """Return a block from a place on, without the comments and here-documents in it."""
    behind = [each for each in left_out if each[0] >= begin]
    begins, ends = [begin, *(end for _, end in behind)], [*(start for start, _ in behind), len(block)]
    return "".join(block[a:b] for a, b in zip(begins, ends, strict=True))


def _programs(code: str) -> list[tuple[str, ...]]:
    lexer = shlex.shlex(code, posix=True, punctuation_chars=_ENDS)
    lexer.commenters, lexer.whitespace, lexer.whitespace_split = "", " \t", True
    found: list[list[str]] = [[]]
    redirected = False
    try:
        for token in lexer:
            if not set(token) <= set(_ENDS):
                # The file of a redirection is no word of the program.
                found[-1] += [] if redirected else [token]
                redirected = False
            elif redirected := bool(set(token) & set("<>")):
                found[-1][-1:] = [word for word in found[-1][-1:] if not word.isdigit()]
            else:
                found.append([])
    except ValueError:  # A quote that is never closed: bash says so.
        return []
    return [words for each in found if (words := _without_grammar(each))]


def _without_grammar(words: list[str]) -> tuple[str, ...]:
    first = next(
        (at for at, word in enumerate(words) if word not in _BEFORE_A_PROGRAM and not _ASSIGNMENT.match(word)),
        len(words),
    )
    return tuple(words[first:])


def left_in_the_background(block: str) -> bool:
    """Return True if a block ends while a program of it runs.

    Then no other program works behind the last `&`, and the block waits for none.
    """
    left_out: list[tuple[int, int]] = []
    block = _without_continuations(block)
    ends = [
        at
        for at, quoted, _ in _read_by_a_shell(block, left_out=left_out)
        if not quoted and _IN_THE_BACKGROUND.match(block, at)
    ]
    if not ends:
        return False
    behind = _programs(_without(block, left_out, begin=ends[-1] + 1))
    return all(words[0] in _NO_WORK for words in behind)


def waits_for_anything(block: str) -> bool:
    """Return True if a block has programs in the background and waits for them by a `wait` that names none."""
    code = _without_continuations(block)
    has_some = any(_IN_THE_BACKGROUND.match(code, at) for at, quoted, _ in _read_by_a_shell(code) if not quoted)
    return has_some and ("wait",) in programs_of(block)


def passed_over(block: str) -> str | None:
    """Return a program with a failure that does not end a block, since `&&` stands behind it and more lines follow.

    Programs that ask something (`test`, `grep`) are left out. So are lists with an end that `||` or `if` uses.
    """
    left_out: list[tuple[int, int]] = []
    block = _without_continuations(block)
    begin, joints = 0, list[int]()
    has_or = False
    for at, quoted, _ in [*_read_by_a_shell(block, left_out=left_out), (len(block), False, False)]:
        if quoted:
            continue
        if block.startswith("&&", at):
            joints.append(at)
        has_or |= block.startswith("||", at)
        goes_on = block[begin:at].rstrip().endswith(("&&", "||", "|"))
        if (at < len(block) and block[at] not in "\n;") or (goes_on and at < len(block)):
            continue
        if joints and not has_or and not _ASKS.match(block, begin):
            parts = [block[a:b] for a, b in zip([begin, *(joint + 2 for joint in joints)], joints, strict=False)]
            works = next((part.strip() for part in parts if _works(part)), None)
            follows = [words for words in _programs(_without(block, left_out, begin=at)) if words[0] not in _CLOSES]
            if works is not None and follows:
                return works
        begin, joints, has_or = at + 1, [], False
    return None


def _works(part: str) -> bool:
    return any(_WORKS.fullmatch(PurePosixPath(words[0]).name) for words in _programs(part)[-1:])


def does_nothing(block: str) -> bool:
    """Return True if a block is comments and empty lines alone."""
    return all(not line.strip() or line.lstrip().startswith("#") for line in block.split("\n"))


def other_interpreter(block: str) -> str | None:
    """Return the program that the first line of a block names with `#!`, if that is another than bash or sh."""
    first = block.split("\n", 1)[0].strip()
    if not first.startswith("#!"):
        return None
    words = first[2:].split()
    names = [PurePosixPath(word).name for word in words if not word.startswith("-")]
    name = next((each for each in names if each != "env"), "")
    return None if name in {"sh", "bash", "dash"} else name or first


def _read_by_a_shell(text: str, *, left_out: list[tuple[int, int]] | None = None) -> Iterator[tuple[int, bool, bool]]:
    """Yield the characters that a shell looks at, without single quotes, comments and here-documents.

    Args:
        text: A command.
        left_out: Gets the begin and the end of each comment and here-document.

    Yields:
        The character's place, then True if it is in double quotes, then True if it begins a word. An escaped character
        yields its backslash. A comment or a here-document yields its first character.
    """
    at, quoted, starts = 0, False, True
    left_out = [] if left_out is None else left_out
    here: list[tuple[bool, str]] = []
    while at < len(text):
        character = text[at]
        if character == '"':
            quoted, starts = not quoted, False
            at += 1
            continue
        if character == "'" and not quoted:
            end = text.find("'", at + 1)
            at, starts = len(text) if end < 0 else end + 1, False
            continue
        yield at, quoted, starts and not quoted
        if character == "\\":
            at, starts = at + 2, starts and text[at + 1 : at + 2] == "\n"
        elif quoted:
            at += 1
        elif character == "#" and starts:
            end = text.find("\n", at)
            left_out.append((at, len(text) if end < 0 else end))
            at = left_out[-1][1]
        elif (ansi := _ANSI_QUOTED.match(text, at)) is not None:
            at, starts = ansi.end(), False
        elif text.startswith("<<<", at):
            at, starts = at + 3, True
        elif (opened := _HERE_DOCUMENT.match(text, at)) is not None:
            here.append((opened[1] == "-", opened[2] or opened[3] or opened[4]))
            at, starts = opened.end(), False
        elif character == "\n" and here:
            left_out.append((at + 1, _behind(text, at + 1, here)))
            at, starts, here = left_out[-1][1], True, []
        else:
            at, starts = at + 1, character in " \t\n;&|()<>"


def _behind(text: str, at: int, here: list[tuple[bool, str]]) -> int:
    """Return the place at which a text goes on behind the here-documents that begin at a place."""
    for indented, end in here:
        while at < len(text):
            stop = text.find("\n", at)
            line = text[at:] if stop < 0 else text[at:stop]
            at = len(text) if stop < 0 else stop + 1
            if (line.lstrip("\t") if indented else line) == end:
                break
    return at


def _runs_a_shell(line: str) -> bool:
    """Return True if the command names a shell and gives it a text, such as `bash -c "..."`."""
    try:
        words = shlex.split(line)
    except ValueError:
        return False
    named = next((place for place, word in enumerate(words) if PurePosixPath(word).name in SHELLS), None)
    return named is not None and any(map(_SHELL_SWITCH.fullmatch, words[named + 1 :]))


def _closing(value: str) -> str:
    """Return dots for the rest of a value where only its beginning was found, such as `$(`, `$[` or `${NAME:`."""
    return "" if re.fullmatch(r"\$\w+|\$\W|\$\{.*\}", value) and value not in {"$(", "$["} else "..."


def _ends_its_line(text: str, at: int) -> bool:
    stop = text.find("\n", at)
    return not text[at : len(text) if stop < 0 else stop].strip()


def _first_word(line: str) -> str:
    words = line.split(None, 1)
    return words[0] if words else ""
