"""What a night found is filed once: against an HTTP server that answers like GitHub's REST API."""

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "file_issue.py"
SPEC = importlib.util.spec_from_file_location("file_issue", SCRIPT)
file_issue = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(file_issue)

ISSUES = "/repos/me/rig/issues"


class GitHub(BaseHTTPRequestHandler):
    """Two issues a page; ``server.issues``: what is there, ``server.fails``: a status for every answer."""

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        found = [issue for issue in self.server.issues if issue["state"] == query["state"][0]]
        page = int(query.get("page", ["1"])[0])
        rest = found[2 * page :]
        link = f'<http://{self.headers["Host"]}{ISSUES}?state=open&page={page + 1}>; rel="next"'
        self._answer(200, found[2 * page - 2 : 2 * page], {"Link": link} if rest else {})

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posted.append((self.path, given))
        self._answer(201, {"html_url": f"https://hub/{len(self.server.posted)}"}, {})

    def _answer(self, status, content, headers):
        self.server.tokens.add(self.headers["Authorization"])
        self.send_response(self.server.fails or status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *words):
        pass


@pytest.fixture
def github():
    server = HTTPServer(("127.0.0.1", 0), GitHub)
    server.issues, server.posted, server.tokens, server.fails = [], [], set(), None
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def file(github, tmp_path, capsys):
    environ = {
        "GITHUB_TOKEN": "secret", "GITHUB_REPOSITORY": "me/rig",
        "GITHUB_API_URL": f"http://127.0.0.1:{github.server_port}",
    }  # fmt: skip

    def call(text: str | None = "KV corruption with `maru`\n\nIt is.\n", **changed):
        path = tmp_path / "issue.md"
        if text is not None:
            path.write_text(text)
        code = file_issue.main([str(path)], {**environ, **changed})
        said = capsys.readouterr()
        assert "secret" not in said.out + said.err
        return code, (said.out + said.err).strip()

    return call


def issue(number, title, **more):
    return {"number": number, "title": title, "state": "open", **more}


def test_a_new_one_is_filed_with_title_and_text(github, file):
    assert file() == (0, "filed https://hub/1")
    assert github.posted == [(ISSUES, {"title": "KV corruption with maru", "body": "It is.\n"})]
    assert github.tokens == {"Bearer secret"}


def test_an_open_one_of_that_title_gets_a_comment_wherever_it_stands(github, file):
    title = "KV corruption with maru"
    github.issues = [
        issue(1, title, state="closed"), issue(2, title, pull_request={}), issue(3, f"{title}, again"),
        issue(4, title.lower()), issue(5, "other"), issue(7, title),
    ]  # fmt: skip
    assert file() == (0, "commented on https://hub/1")
    assert github.posted == [(f"{ISSUES}/7/comments", {"body": "It is.\n"})]


def test_what_is_closed_or_only_alike_is_no_duplicate(github, file):
    github.issues = [issue(1, "KV corruption with maru", state="closed"), issue(2, "kv corruption with maru")]
    assert file()[0] == 0
    assert [path for path, _ in github.posted] == [ISSUES]


def test_a_good_night_files_nothing(github, file):
    assert file(None, GITHUB_TOKEN="") == (0, "nothing is corrupt, so there is nothing to file")
    assert (github.posted, github.tokens) == ([], set())


def test_a_text_beyond_githubs_limit_is_cut_and_says_so(github, file):
    assert file("t" * 300 + "\n\n" + "x" * 70_000)[0] == 0
    ((_, sent),) = github.posted
    assert len(sent["title"]) == file_issue.TITLE
    assert len(sent["body"]) == file_issue.BODY
    assert sent["body"].endswith(file_issue.CUT)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "issues: write"),
        (403, "issues: write"),
        (404, "GITHUB_REPOSITORY"),
        (410, "switched on"),
        (500, "500 from"),
    ],
)
def test_what_github_refuses_is_said(github, file, status, says):
    github.fails = status
    code, said = file()
    assert code == 2
    assert says in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        ("t\n\nb", {"GITHUB_TOKEN": ""}, "GITHUB_TOKEN is not set"),
        ("t\n\nb", {"GITHUB_REPOSITORY": ""}, "GITHUB_REPOSITORY is not set"),
        ("t\n\nb", {"GITHUB_API_URL": "http://127.0.0.1:9"}, "can't be reached (ConnectionError)"),
        ("only a title", {}, "has no title and text"),
        ("", {}, "has no title and text"),
    ],
)
def test_what_can_not_be_filed_is_said_in_one_sentence(github, file, text, environ, says):
    code, said = file(text, **environ)
    assert code == 2
    assert says in said
    assert len(said.splitlines()) == 1
    assert github.posted == []


def test_a_folder_that_is_not_there_is_no_good_night(capsys):
    assert file_issue.main(["/nowhere/night/issue.md"], {}) == 2
    assert "/nowhere/night is no folder" in capsys.readouterr().err
