"""What a script needs, as its source or its job file says it."""

from __future__ import annotations

import pytest

from spotkeep.errors import InstallError
from spotkeep.runner.installation import Requirements, find_requirements


def found(source, install="auto", listed=()):
    return find_requirements(install, listed=listed, source=source)


def test_a_source_that_asks_for_nothing_gets_nothing(tmp_path):
    assert found(tmp_path) is None
    assert found(None) is None


def test_requirements_txt_is_found_before_pyproject(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\ndependencies = ["other"]\n')
    assert found(tmp_path) == Requirements(named="pyproject.toml", text="other\n")
    (tmp_path / "requirements.txt").write_text("timm==1.0.9\n")
    asked = found(tmp_path)
    assert asked.named == "requirements.txt"
    assert asked.text == "timm==1.0.9\n"
    assert asked.file == tmp_path / "requirements.txt"


def test_none_installs_nothing_whatever_is_there(tmp_path):
    (tmp_path / "requirements.txt").write_text("timm\n")
    assert found(tmp_path, "none") is None


def test_a_file_with_comments_alone_asks_for_nothing(tmp_path):
    (tmp_path / "requirements.txt").write_text("# the image has all of it\n\n")
    assert found(tmp_path) is None


def test_a_list_goes_before_everything_else(tmp_path):
    (tmp_path / "requirements.txt").write_text("timm\n")
    assert found(tmp_path, listed=("a==1", "b")) == Requirements(named="the job file", text="a==1\nb\n")
    assert found(None, "none", listed=("a",)) == Requirements(named="the job file", text="a\n")


@pytest.mark.parametrize("text", ["[tool.ruff]\n", '[project]\nname = "a"\n', "[tool.poetry.dependencies]\nx = 1\n"])
def test_a_pyproject_without_dependencies_of_its_project_asks_for_nothing(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert found(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[project", "cannot be read"),
        ('[project]\nname = "a"\ndynamic = ["dependencies"]\n', "are dynamic"),
        ("[project]\ndependencies = 3\n", "are no list of texts"),
    ],
)
def test_a_pyproject_that_does_not_say_it_is_refused(tmp_path, text, why):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InstallError, match=why):
        found(tmp_path)


@pytest.mark.parametrize("name", ["missing.txt", "../outside.txt", "linked.txt", "."])
def test_a_file_that_is_none_of_the_source_is_refused(tmp_path, name):
    source = tmp_path / "source"
    source.mkdir()
    (tmp_path / "outside.txt").write_text("a\n")
    (source / "linked.txt").symlink_to(tmp_path / "outside.txt")
    with pytest.raises(InstallError, match="no file of the source"):
        found(source, name)


def test_a_file_needs_a_source():
    with pytest.raises(InstallError, match="has no source"):
        found(None, "requirements/train.txt")


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00", b"a" * (2**20 + 1)])
def test_a_file_that_is_no_requirements_file_is_refused(tmp_path, raw):
    (tmp_path / "requirements.txt").write_bytes(raw)
    with pytest.raises(InstallError, match=r"requirements\.txt"):
        found(tmp_path)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("timm==1.0.9\n", False),
        ("timm==1.0.9 \\\n    --hash=sha256:00\n", False),
        ("timm @ https://example.com/timm.whl\n", False),
        ("-r more.txt\n", True),
        ("a\n--find-links wheels\n", True),
        ("-e .\n", True),
        (".\n", True),
        ("./wheels/a.whl\n", True),
        ("a @ file:///opt/a.whl\n", True),
    ],
)
def test_a_text_that_names_files_is_known(text, reads):
    assert Requirements(named="requirements.txt", text=text).reads_other_files is reads
