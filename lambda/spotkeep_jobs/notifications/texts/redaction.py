"""Removes texts that look like secrets from the words of a failure, which go to every subscriber of the deployment.

Pure.

A failure's reason quotes the failed command with its arguments, and the last lines that a script printed. Secrets are
known by their form, by the name before them or by their place in an address. Others are not recognised.

Sources: "Understand unique ID prefixes" (IAM user guide), RFC 6750 (bearer tokens), RFC 3986, 3.2.1 (user information).
"""

from __future__ import annotations

import re
from typing import Final

REDACTED: Final = "[redacted]"

_NAMES: Final = (
    r"(?:token|secret|passwd|password|passphrase|pwd|api[-_]?key|access[-_]?key(?:[-_]?id)?|secret[-_]?key"
    r"|private[-_]?key|credentials?|authorization|x-amz-(?:signature|credential)|sig)"
)
_VALUE: Final = r"""(?:"[^"\n]*"|'[^'\n]*'|["']?[^\s"',;&)}\]]+)"""
_FORMS: Final = (
    # Private keys, whole or cut off.
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REDACTED),
    # Who calls, in an address: `https://user:password@host`, `https://token@host`.
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/?#@\"']+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/-]{16,}=*"), rf"\1 {REDACTED}"),
    # `--token x`, `['--token', 'x']`.
    (re.compile(rf"""(?i)(--?[a-z0-9_-]{{0,40}}?{_NAMES}(?:["']?\s*,\s*|["']?\s+))(?!-){_VALUE}"""), rf"\1{REDACTED}"),
    # `token=x`, `"token": "x"`.
    (re.compile(rf"""(?i)({_NAMES}["']?\s*[=:]\s*)(?!bearer\b|basic\b){_VALUE}"""), rf"\1{REDACTED}"),
    # AWS's access key ids; secrets have forty letters, digits, slashes and pluses, but not every forty are one.
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,124}\b"), REDACTED),
    (
        re.compile(
            r"(?<![\w/+=])(?=[\w/+]{0,39}[A-Z])(?=[\w/+]{0,39}[a-z])(?=[\w/+]{0,39}\d)[A-Za-z0-9/+]{40}(?![\w/+=])"
        ),
        REDACTED,
    ),
    # Tokens that say whose they are: GitHub, GitLab, Hugging Face, Slack, OpenAI, Anthropic, Google; JSON Web Tokens.
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[a-z]-|sk-|AIza)[\w-]{16,}"), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), REDACTED),
)


def without_secrets(text: str) -> str:
    """Remove texts that look like secrets, and leave the text around them.

    Args:
        text: The words of a failure, some kilobytes.
    """
    for form, instead in _FORMS:
        text = form.sub(instead, text)
    return text
