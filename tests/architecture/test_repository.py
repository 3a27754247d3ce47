"""What holds for the repository as a whole: locks that go together, docs whose links lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
# The links of docs/site/pages/ lead to pages of the site, and `make docs` follows them.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("**/*.md"))]


def test_the_function_lock_is_part_of_the_development_lock() -> None:
    """What runs in AWS is what the tests ran."""

    def pins(lock: str) -> set[str]:
        return set(
            re.findall(r"^([a-z0-9][a-z0-9_.-]*==[^ ;\\]+)", (ROOT / "locks" / lock).read_text(), flags=re.MULTILINE)
        )

    assert pins("lambda.txt") <= pins("dev.txt")
    assert pins("search.txt") <= pins("dev.txt")


def test_no_two_locks_hold_different_versions_of_a_package() -> None:
    """All are installed into one environment: else each `make setup-...` takes away what another has installed."""
    versions: dict[str, dict[str, frozenset[str]]] = {}
    for lock in LOCKS:
        pins = re.findall(r"^([a-z0-9][a-z0-9_.-]*)==([^ ;+\\]+)", lock.read_text(), flags=re.MULTILINE)
        for package in {package for package, _ in pins}:
            held = frozenset(version for name, version in pins if name == package)
            versions.setdefault(package, {})[lock.name] = held
    shared = {package: held for package, held in versions.items() if len(held) > 1}
    assert "h5py" in shared
    assert {package: held for package, held in shared.items() if len(set(held.values())) > 1} == {}


def test_a_training_script_needs_no_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert missing == []


def test_every_make_target_that_the_docs_name_exists_and_every_target_is_named() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):.*## ", makefile, flags=re.MULTILINE))
    text = "".join((ROOT / page).read_text() for page in ("README.md", "docs/testing.md"))
    named = {
        first or second for first, second in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)\b", text, flags=re.MULTILINE)
    }
    assert named - targets == set()
    assert (
        targets
        - named
        - {"help", "lint", "types", "contracts"}
        - {"setup-torch", "setup-jax", "setup-tensorflow", "setup-boosters", "setup-notebook"}
        == set()
    )


def test_a_person_reads_the_readme_in_three_minutes() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len([line for line in lines if not line.startswith("<!-- ")]) <= 120


def test_the_glossary_has_at_most_25_words() -> None:
    rows = re.findall(r"^\| \*\*", (ROOT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    assert 10 <= len(rows) <= 25
