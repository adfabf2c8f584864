"""Files what a night found: an open issue of the same title gets a comment, else there is a new one.

usage: file_issue.py NIGHT/issue.md   a file that is not there means that nothing was corrupt
GITHUB_TOKEN, GITHUB_REPOSITORY       who files, and where (owner/name)
GITHUB_API_URL                        [https://api.github.com]
Exit code: 0 filed or nothing to file, 2 it could not be filed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import requests

#: GitHub's limits, in characters.
TITLE, BODY = 256, 65536
LIMIT_S = 30
CUT = "\n\n(cut: the whole text is in the night's artifact)\n"


class NotFiled(Exception):
    """Why not and what to do, in one sentence."""


def main(words: list[str], environ: Mapping[str, str]) -> int:
    try:
        if len(words) != 1:
            raise NotFiled("give the issue.md of a night.")
        print(file_issue(Path(words[0]), environ))
    except NotFiled as error:
        print(f"file_issue: {error}", file=sys.stderr)
        return 2
    return 0


def file_issue(path: Path, environ: Mapping[str, str]) -> str:
    """What was done. Raises NotFiled."""
    if not path.parent.is_dir():
        raise NotFiled(f"{path.parent} is no folder; give the issue.md of a night.")
    if not path.exists():
        return "nothing is corrupt, so there is nothing to file"
    title, body = title_and_body(path)
    lacking = [name for name in ("GITHUB_TOKEN", "GITHUB_REPOSITORY") if not environ.get(name)]
    if lacking:
        raise NotFiled(f"{lacking[0]} is not set; the workflow gives it from github.token and github.repository.")
    issues = f"{environ.get('GITHUB_API_URL') or 'https://api.github.com'}/repos/{environ['GITHUB_REPOSITORY']}/issues"
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {environ['GITHUB_TOKEN']}"
        session.headers["Accept"] = "application/vnd.github+json"
        same = next((issue for issue in _open(session, issues) if issue["title"] == title), None)
        if same:
            made = _ask(session, "POST", f"{issues}/{same['number']}/comments", json={"body": body}).json()
            return f"commented on {made['html_url']}"
        made = _ask(session, "POST", issues, json={"title": title, "body": body}).json()
        return f"filed {made['html_url']}"


def title_and_body(path: Path) -> tuple[str, str]:
    """The first line as plain text, which a title is, and the rest as it stands."""
    first, _, body = path.read_text(encoding="utf-8").strip().partition("\n")
    title = first.replace("`", "").lstrip("# ").strip()
    if not title or not body.strip():
        raise NotFiled(f"{path} has no title and text; close the night again by maru-e2e night.")
    body = body.strip() + "\n"
    return title[:TITLE], body if len(body) <= BODY else body[: BODY - len(CUT)] + CUT


def _open(session: requests.Session, issues: str) -> Iterator[dict]:
    """Open issues of all pages; a pull request is none."""
    url: str | None = f"{issues}?state=open&per_page=100"
    while url:
        answer = _ask(session, "GET", url)
        yield from (issue for issue in answer.json() if "pull_request" not in issue)
        url = answer.links.get("next", {}).get("url")


def _ask(session: requests.Session, method: str, url: str, **given) -> requests.Response:
    try:
        answer = session.request(method, url, timeout=LIMIT_S, **given)
    except requests.RequestException as error:
        raise NotFiled(f"{url} can't be reached ({type(error).__name__}); check GITHUB_API_URL.") from error
    if answer.status_code in (401, 403):
        raise NotFiled(f"{answer.status_code} from {url}: give the workflow's token `permissions: issues: write`.")
    if answer.status_code in (404, 410):
        raise NotFiled(
            f"{answer.status_code} from {url}: check GITHUB_REPOSITORY, and that its issues are switched on."
        )
    if not answer.ok:
        raise NotFiled(f"{answer.status_code} from {url}: {' '.join(answer.text.split())[:200]}")
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
