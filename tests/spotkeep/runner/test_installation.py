"""What a script needs is there before it starts: real pip, real virtual environments, wheels that are made here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spotkeep.errors import InstallError, RemoteError
from spotkeep.runner import installation
from spotkeep.runner.installation import Requirements, find_requirements
from spotkeep.runner.virtual_environment import ImagePython, VirtualEnvironment

TRAINS = "import sys, needed; print(needed.__version__, needed.__file__, sys.prefix)"


@pytest.fixture
def image(tmp_path):
    """The `bin` of a Python that has pip and `pluggy` 1.0: of all that is installed for ours, pip reads for seconds."""
    python = tmp_path / "image"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
    (packages,) = python.glob("lib/*/site-packages")
    pip = Path(importlib.util.find_spec("pip").origin).parent
    (packages / "pip").symlink_to(pip)
    (packages / "pluggy.py").write_text("__version__ = '1.0'\n")
    (packages / "pluggy-1.0.dist-info").mkdir()
    (packages / "pluggy-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: pluggy\nVersion: 1.0\n")
    return python / "bin"


@pytest.fixture
def wheels(tmp_path, image):
    """Makes wheels where pip finds them, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()

    def make(name, version, *, requires=()):
        path = folder / f"{name}-{version}-py3-none-any.whl"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata += "".join(f"Requires-Dist: {each}\n" for each in requires)
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(f"{name}.py", f"__version__ = {version!r}\ndef main(): print('of the scripts')\n")
            wheel.writestr(f"{info}/METADATA", metadata)
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{name}-script = {name}:main\n")
            wheel.writestr(f"{info}/RECORD", "")
        return path

    make.environment = {
        "PATH": f"{image}{os.pathsep}{os.defpath}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_NO_CACHE_DIR": "1",
    }
    return make


@pytest.fixture
def source(tmp_path, make_tar):
    """Makes the channel with the job's source."""

    def make(**files):
        channel = tmp_path / "ml" / "input" / "data" / "source"
        channel.mkdir(parents=True, exist_ok=True)
        members = ({"name": name.replace("__", "."), "content": text.encode()} for name, text in files.items())
        make_tar(*members).replace(channel / "source.tar.gz")

    return make


def events_of(job, *names):
    return [event for event in job.events if event["event"] in names]


def test_the_script_finds_what_requirements_txt_asks_for(start, wheels, source, tmp_path):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed\npluggy\n")
    environment = tmp_path / "ml" / "environment"
    # An installation that was cut short begins anew.
    (environment / "lib").mkdir(parents=True)
    (environment / "lib" / "half.py").write_text("")
    job = start(["python", "train.py"], spec={"install": "auto"}, **wheels.environment)
    assert job.finish() == 0, job.stderr
    version, file, prefix = job.lines[-2].split()
    assert version == "1.0"
    assert file.startswith(f"{environment}/")
    assert prefix == str(environment)
    assert not (environment / "lib" / "half.py").exists()
    # The image has pluggy: it is not installed again.
    assert not list(environment.rglob("pluggy*"))
    installing, installed = events_of(job, "installing", "installed")
    assert installing["what"] == installed["what"] == "requirements.txt"
    assert installed["reason"] == "by pip"
    # The host is given back: nothing is kept there for a next job.
    assert not events_of(job, "environment-cached", "environment-not-cached")

    # The volume of a run on EC2 has it when the run comes back, without pip.
    wheels("needed", "2.0")
    without_wheels = {**wheels.environment, "PIP_FIND_LINKS": ""}
    again = start(["python", "train.py"], spec={"install": "auto"}, **without_wheels)
    assert again.finish() == 0, again.stderr
    assert again.lines[-2].split()[0] == "1.0"
    assert events_of(again, "installed")[0]["reason"] == "kept on this machine"


def test_an_environment_is_complete_for_what_was_installed_and_for_nothing_else(tmp_path):
    image = ImagePython("python3", version="3.12", platform="linux", prefix="/usr", folders=(), packages=(), pip=True)
    virtual = VirtualEnvironment(tmp_path, image=image)
    virtual.python.parent.mkdir()
    virtual.python.touch()
    virtual.mark_complete(virtual.key("needed==1.0\n", pin=None))
    assert virtual.is_complete(virtual.key("needed==1.0\n", pin=None))
    assert not virtual.is_complete(virtual.key("needed==2.0\n", pin=None))
    assert not virtual.is_complete(virtual.key("needed==1.0\n", pin="0" * 40))


@pytest.mark.long
def test_what_has_another_hash_ends_the_job_with_pips_last_words(start, wheels, source):
    wheels("needed", "7")
    source(train__py="print('never')", requirements__txt=f"needed==7 --hash=sha256:{'0' * 64}\n")
    job = start(["python", "train.py"], spec={"install": "auto"}, **wheels.environment)
    assert job.finish() == 71
    assert "never" not in job.lines
    assert job.failure.startswith("pip install -r requirements.txt exited with code 1:")
    assert "DO NOT MATCH THE HASHES" in job.stderr
    assert not events_of(job, "installed")


@pytest.mark.long
def test_a_list_a_script_of_it_and_a_newer_version_than_the_images(start, wheels, image):
    wheels("needed", "1.0", requires=["pluggy==99"])
    wheels("pluggy", "99")
    wheels("colorful", "3")
    job = start(
        ["sh", "-c", "needed-script && python -c 'import pluggy; print(pluggy.__version__)'"],
        spec={"requirements": ("needed>=1", "colorful==3")},
        **wheels.environment,
    )
    assert job.finish() == 0, job.stderr
    assert job.lines[-3:-1] == ["of the scripts", "99"]
    # That of the image is as it was.
    there = subprocess.run([image / "python", "-c", "import pluggy; print(pluggy.__version__)"], capture_output=True)
    assert there.stdout.strip() == b"1.0"


@pytest.mark.long
def test_an_image_without_pip_is_refused_with_what_to_do(start, source, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    source(train__py="", requirements__txt="needed\n")
    job = start(
        ["python", "train.py"],
        spec={"install": "auto"},
        interpreter=str(tmp_path / "bare" / "bin" / "python"),
        PATH=f"{tmp_path}/bare/bin:/usr/bin:/bin",
    )
    assert job.finish() == 71
    assert "has no pip to install them" in job.failure
    assert "install: none" in job.failure


@pytest.mark.long
def test_a_notice_during_the_installation_leaves_as_one_during_the_training(start, source, tmp_path):
    """A build that takes its time: pip is interrupted, and nothing half is taken for whole."""
    slow = """
        import pathlib, time
        pathlib.Path("building").touch()
        time.sleep(60)
    """
    source(
        train__py="print('never')",
        requirements__txt="./slow\n",
        **{"slow/setup__py": "\n".join(line.strip() for line in slow.splitlines())},
    )
    job = start(
        ["python", "train.py"],
        spec={"install": "auto"},
        PIP_NO_INDEX="1",
        PIP_NO_BUILD_ISOLATION="0",
        SPOTKEEP_NOTICE_SECONDS="3",
    )
    job.wait_for("installing")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert job.failure is None
    assert not (tmp_path / "ml" / "environment" / "spotkeep-environment.json").exists()


def test_a_machine_is_set_up_once(start, source):
    source(train__py="print('trains')", setup__py="print('sets up')")
    spec = {"setup": ("python", "setup.py")}
    first, second = start(["python", "train.py"], spec=spec), None
    assert first.finish() == 0, first.stderr
    second = start(["python", "train.py"], spec=spec)
    assert second.finish() == 0, second.stderr
    assert [job.lines.count("sets up") for job in (first, second)] == [1, 0]
    assert [job.lines.count("trains") for job in (first, second)] == [1, 1]


def test_a_setup_that_fails_ends_the_job_with_its_last_words(start, source):
    source(train__py="print('never')", setup__py="raise SystemExit('no tokenizer')")
    job = start(["python", "train.py"], spec={"setup": ("python", "setup.py")})
    assert job.finish() == 71
    assert job.failure == "setup: python setup.py exited with code 1:\nno tokenizer"
    assert "never" not in job.lines


@pytest.mark.long
def test_the_next_job_on_a_warm_host_finds_what_the_last_one_installed(start, wheels, source, tmp_path):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed\n")

    def the_next_job(*, warm, user, **environment):
        """Only what is in the cache directory stays on a host."""
        shutil.rmtree(tmp_path / "ml" / "environment", ignore_errors=True)
        index = {"PIP_EXTRA_INDEX_URL": f"https://{user}@index.example/simple"}
        spec = {"install": "auto", "warm_pool": warm}
        job = start(["python", "train.py"], spec=spec, **{**wheels.environment, **index, **environment})
        assert job.finish() == 0, job.stderr
        [installed] = events_of(job, "installed")
        kept = [event["what"] for event in events_of(job, "environment-cached", "environment-not-cached")]
        return job.lines[-2].split()[0], installed["reason"], kept

    assert the_next_job(warm=True, user="ada:password") == ("1.0", "by pip", ["the warm pool's cache"])
    wheels("needed", "2.0")
    # Another launch, with another password, whether its own host is kept or not.
    for warm in (False, True):
        found = the_next_job(warm=warm, user="bob:other", SPOTKEEP_LAUNCH="another")
        assert found == ("1.0", "from the warm pool's cache", [])


def test_what_pip_is_set_to_do_decides_what_another_job_may_take_and_passwords_do_not():
    def key(index):
        return installation._key_for_any_job("key", {"PIP_EXTRA_INDEX_URL": index, "HOME": "/root"})

    assert key("https://ada:password@index.example/") == key("https://bob:other@index.example/")
    assert key("https://index.example/") != key("https://index.test/")


@pytest.mark.long
def test_what_may_have_changed_without_a_pin_is_not_taken_from_a_warm_host(start, wheels, source):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="-r more.txt\n", more__txt="needed\n")
    job = start(["python", "train.py"], spec={"install": "auto", "warm_pool": True}, **wheels.environment)
    assert job.finish() == 0, job.stderr
    assert not events_of(job, "environment-cached")


@pytest.mark.long
def test_a_comeback_takes_the_environment_from_s3(start, wheels, source, local_aws, bucket, tmp_path):
    wheels("needed", "1.0")
    source(train__py=TRAINS, requirements__txt="needed\n")
    place = f"s3://{bucket.name}/runs/a-1/output/environments/"
    spec = {"install": "auto", "environments": place}
    of_the_job = {**local_aws.environment(), "SPOTKEEP_LAUNCH": "feed"}

    def on_a_new_machine(**environment):
        shutil.rmtree(tmp_path / "ml" / "environment", ignore_errors=True)
        job = start(["python", "train.py"], spec=spec, **{**of_the_job, **environment})
        assert job.finish() == 0, job.stderr
        # The last line is the event `exit`.
        return job.lines[-2].split()[0], [event["event"] for event in job.events][2:-1], job

    _, first, _ = on_a_new_machine(**wheels.environment)
    assert first == ["installed", "environment-cached"]
    version, names, back = on_a_new_machine(PATH=wheels.environment["PATH"], PIP_NO_INDEX="1")
    assert (version, names) == ("1.0", ["installed"])
    assert events_of(back, "installed")[0]["reason"] == "from the cache"


class Stranger:
    """A cache with what is not ours, and without room."""

    def fetch(self, key, directory):
        raise RemoteError("it was not written by this launch")

    def keep(self, key, directory):
        raise OSError("no room")


def test_what_cannot_be_taken_from_a_cache_or_kept_there_ends_nothing(tmp_path, job_events):
    place, virtual = installation._Place("S3", Stranger(), "key", reason=""), VirtualEnvironment(tmp_path, image=None)
    assert not installation._fetched(place, virtual)
    installation._keep(place, virtual)
    problems = [(event["event"], event["problem"]) for event in job_events()]
    assert problems == [
        ("environment-not-cached", "it was not written by this launch"),
        ("environment-not-cached", "no room"),
    ]


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
