"""The token of a private repository reaches the server of the repository, and nothing else.

Who: the author of a submodule, another server, who reads the files or the processes of the machine.
With what: a submodule on a host of theirs, a redirect to it, `ps`, `.git/config`, the store of passwords of git.
What they would gain: the token, with which they read the repository, and perhaps write to it.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from spotkeep.errors import SourceError
from spotkeep.runner.source import check_out
from spotkeep_fleet.training_spec import JobSource
from tests.models.secrets_manager import SecretsManager
from tests.spotkeep.runner.conftest import pyz, start
from tests.spotkeep.runner.test_source import add_submodule, everything_in, git, make_repository, newest

__all__ = ["make_repository", "pyz", "start"]

TOKEN = "ghp_MARKER0123456789"


class GitServer:
    """git's own HTTP server, which asks for a user and a token.

    Attributes:
        seen: The users and tokens that it was sent.
        moved_to: Where it sends each request on to, if anywhere.
    """

    def __init__(self, root, *, user="x-access-token", token=TOKEN):
        self.root, self.seen, self.moved_to = root, [], None
        self._right = f"{user}:{token}"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_arguments):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request):
        given = request.headers.get("authorization", "")
        sent = base64.b64decode(given.removeprefix("Basic ")).decode() if given else None
        if sent is not None:
            self.seen.append(sent)
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        if self.moved_to is not None:
            self._send(request, 302, {"Location": self.moved_to + request.path}, b"")
        elif sent != self._right:
            self._send(request, 401, {"WWW-Authenticate": 'Basic realm="git"'}, b"")
        else:
            self._by_git(request, body)

    def _by_git(self, request, body):
        parts = urlsplit(request.path)
        answer = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            check=True,
            env={
                "PATH": os.defpath,
                "GIT_PROJECT_ROOT": str(self.root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": request.command,
                "CONTENT_TYPE": request.headers.get("content-type", ""),
                "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
                "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
                "REMOTE_ADDR": "127.0.0.1",
                "REMOTE_USER": "x",
            },
        ).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._send(request, int(headers.pop("Status", "200 OK").split()[0]), headers, content)

    @staticmethod
    def _send(request, status, headers, content):
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)


@pytest.fixture
def serve(tmp_path):
    servers = []

    def serve(**fields):
        servers.append(GitServer(tmp_path, **fields))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


@pytest.fixture
def environment(tmp_path):
    """The environment of a job, whose git keeps the passwords that it learns."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[credential]\n\thelper = store\n[credential]\n\thelper = cache\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "ml" / "source"
    path.mkdir(parents=True)
    return path


@contextlib.contextmanager
def no_process_shows(marker):
    """No process has this among its words, as `ps` shows them, whenever one looks."""
    found, over = [], threading.Event()

    def look():
        while not over.wait(0.002):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if marker in words:
                        found.append(words)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()
    assert not found


def files_with(marker, *folders):
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if marker.encode() in path.read_bytes()]


def test_a_private_repository_and_its_submodule_on_the_same_host(
    serve, make_repository, environment, target, tmp_path, capfd
):
    server, other = serve(), serve()
    part, elsewhere = make_repository("part"), make_repository("elsewhere")
    whole = make_repository("whole")
    add_submodule(whole, "part", address="../part", commit=newest(part))
    add_submodule(whole, "elsewhere", address=f"{other.url}/elsewhere", commit=newest(elsewhere))
    with no_process_shows("MARKER"):
        check_out(f"{server.url}/whole", newest(whole), target, environment, token=TOKEN)
    assert (target / "train.py").read_text() == "print(2)"
    assert (target / "part" / "train.py").read_text() == "print(2)"
    assert set(server.seen) == {f"x-access-token:{TOKEN}"}
    # That host has the same token for right. It is asked, and is sent none.
    assert other.seen == []
    assert not (target / "elsewhere" / "train.py").exists()
    assert git(target, "config", "remote.origin.url") == f"{server.url}/whole"
    assert not files_with("MARKER", target, tmp_path / "home")
    said = capfd.readouterr()
    assert "the submodule elsewhere stays behind" in said.err
    assert "MARKER" not in said.out + said.err


def test_a_server_that_asks_for_a_user(serve, make_repository, environment, target):
    server, repository = serve(user="x-token-auth"), make_repository("whole")
    check_out(f"{server.url}/whole", newest(repository), target, environment, token=f"x-token-auth:{TOKEN}\n")
    assert "train.py" in everything_in(target)


def test_a_host_that_the_server_sends_on_to_gets_no_token(serve, make_repository, environment, target):
    server, other, repository = serve(), serve(), make_repository("whole")
    server.moved_to = other.url
    with pytest.raises(SourceError):
        check_out(f"{server.url}/whole", newest(repository), target, environment, token=TOKEN)
    assert other.seen == []


@pytest.mark.parametrize("token", [None, "ghp_MARKERwrong"])
def test_without_the_right_token_the_error_shows_none(serve, make_repository, environment, target, token):
    server, repository = serve(), make_repository("whole")
    with pytest.raises(SourceError, match="git could not get the source") as refused:
        check_out(f"{server.url}/whole", newest(repository), target, environment, token=token)
    assert "MARKER" not in str(refused.value)
    assert not files_with("MARKER", target)


@pytest.mark.parametrize(
    ("url", "token", "said"),
    [
        ("ssh://git@127.0.0.1/a/b.git", TOKEN, "a token goes to an https:// address alone"),
        ("https://127.0.0.1/a/b.git", "two MARKER", "no token of one word"),
        ("https://127.0.0.1/a/b.git", "MARKER:", "no token of one word"),
    ],
)
def test_what_is_no_token_for_an_address_is_refused(target, environment, url, token, said):
    with pytest.raises(SourceError, match=said) as refused:
        check_out(url, 40 * "0", target, environment, token=token)
    assert "MARKER" not in str(refused.value)


def test_a_job_gets_its_source_by_a_secret_and_its_script_does_not_see_the_token(start, serve, make_repository):
    server, aws = serve(), SecretsManager()
    aws.put("github", f'{{"token": "{TOKEN}"}}')
    repository = make_repository("whole", **{"show.py": "import os; print('ghp_' in repr(dict(os.environ)))"})
    source = JobSource(git_url=f"{server.url}/whole", git_commit=newest(repository), git_secret="github:token::")
    keys = {"AWS_ACCESS_KEY_ID": "AKIAOFTHEJOB", "AWS_SECRET_ACCESS_KEY": "S", "AWS_REGION": "us-east-1"}
    with aws.served() as url:
        job = start(["python", "show.py"], spec={"source": source}, AWS_ENDPOINT_URL=url, **keys)
        assert job.finish() == 0, job.stderr
        assert job.lines[1] == "False"
        assert not files_with("MARKER", job.base)
        # A rotated token is read at the next start, and a token that was withdrawn ends the job.
        aws.put("github", '{"token": "ghp_MARKERold"}')
        job = start(["python", "show.py"], spec={"source": source}, AWS_ENDPOINT_URL=url, **keys)
        assert job.finish() == 66
    assert "git could not get the source" in job.failure
    assert "MARKER" not in job.failure + job.stderr
