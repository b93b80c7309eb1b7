"""Only the one who started it is let in, and nothing private is left in logs or to other sites."""

from __future__ import annotations

import hashlib
import re
import socket
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from web_helpers import WORD, Site, serving

from sessionstore import SessionDB
from sessionstore.cli import main


def test_the_address_that_is_printed_opens_it_and_the_token_goes_from_the_address(site: Site):
    answer = site.ask(f"/search?token={site.token}&q=a%26b", cookie=None)

    assert (answer.status, answer.headers["location"]) == (303, "/search?q=a%26b")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert site.token.lower() not in cookie
    assert site.ask("/").status == 200


@pytest.mark.parametrize("path", ["/", "/search?q=hello", "/session?id=s1", "/nothing", "/text"])
@pytest.mark.parametrize("query", ["", "token=", "token=wrong", "token=%ff%00"])
def test_without_the_token_nothing_is_told(site: Site, path: str, query: str):
    joined = f"{path}{'&' if '?' in path else '?'}{query}" if query else path

    for cookie in (None, "x=y", f"sessionstore-{site.port}=guess", f"sessionstore-{site.port}="):
        answer = site.ask(joined, cookie=cookie)
        assert answer.status == 403
        assert "Hello" not in answer.text
        assert "Talk" not in answer.text
        assert "with its token" in answer.text


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.test", ""]
)
def test_another_name_for_this_machine_is_refused(site: Site, host: str):
    answer = site.ask("/", host=host.format(port=site.port))

    assert answer.status == 403
    assert "Talk" not in answer.text


@pytest.mark.parametrize("host", ["localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_its_own_names_are_taken(site: Site, host: str):
    assert site.ask("/", host=host.format(port=site.port)).status == 200


@pytest.mark.parametrize(
    "other",
    ['theme={"dark": true}', "x[y]=1", "a=b c", 'a="open', "alone", "path=/", "k=\xe9", "=v", ";"],
)
def test_cookies_of_other_programs_of_this_machine_shut_nobody_out(site: Site, other: str):
    same_name = f"{site.cookie.partition('=')[0]}=anothers"

    for cookie in (other, same_name):
        assert site.ask("/", cookie=f"{cookie}; {site.cookie}").status == 200
        assert site.ask("/", cookie=f"{site.cookie}; {cookie}").status == 200
        assert site.ask("/", cookie=cookie).status == 403


def test_it_listens_on_this_machine_only(site: Site):
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", site.port or 0), timeout=5)


@pytest.mark.parametrize("site_of", ["cross-site", "same-site"])
def test_another_site_may_link_here_but_not_read_or_post(site: Site, site_of: str):
    fetched = site.ask("/", Sec_Fetch_Site=site_of, Sec_Fetch_Mode="cors")
    posted = site.ask("/change", method="POST", body={}, Sec_Fetch_Site=site_of)
    followed = site.ask("/", Sec_Fetch_Site=site_of, Sec_Fetch_Mode="navigate")

    assert (fetched.status, posted.status, followed.status) == (403, 403, 200)


@pytest.mark.parametrize(
    "path",
    ["/", "/nothing", "/session?id=nobody", "/static/page.js", "/download?id=s1&format=html"],
)
def test_every_answer_bears_the_policy(site: Site, path: str):
    headers = site.ask(path).headers
    policy = headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src 'nonce-" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in headers if name.startswith("access-control")]
    assert policy != site.ask(path).headers["content-security-policy"]  # a nonce serves once


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/session?id=nobody", 404, "no session has the id"),
        ("/session", 400, "names no conversation"),
        ("/session?id=s1&at=x", 400, "at is a number"),
        ("/?min-tokens=many", 400, "Invalid value for min-tokens: "),
        ("/?min-tokens=2&max-tokens=1", 400, "min-tokens 2 is above max-tokens 1"),
        ("/?nonsense=1", 400, "'nonsense' is no filter; there are older-than, newer-than, "),
        ("/?source%3Dcli=x", 400, "'source=cli' is no filter"),
        ("/?min-cost=x", 400, "is not a valid number"),
        ("/?older-than=99999999999999999999", 400, "further back than any time"),
        ("/?path=here&source=", 303, ""),
        ("/?path=here", 400, "'path' is no filter"),
        ("/?past=1", 400, "first page"),
        ("/search?q=a&since=soon", 400, "Invalid value for since: "),
        ("/search?q=a&sort=up", 400, "sort is one of rank, newest, oldest"),
        (f"/search?q={'x' * 3000}", 400, "2,048"),
        ("/download?id=s1&format=exe", 400, "format is one of"),
        ("/text?id=s1&message=0", 404, "Go on from one of the links"),
        ("/nothing", 404, "Go on from one of the links"),
        ("/delete?id=s1", 404, "Go on from one of the links"),
    ],
)
def test_what_cannot_be_shown_is_told_in_a_sentence(
    site: Site, path: str, status: int, sentence: str
):
    answer = site.ask(path)

    assert answer.status == status
    told = answer.text.replace("&#39;", "'")
    assert sentence in told
    assert status == 303 or re.search("<p>[^<]*[^.?<][.?]</p>", told)  # ends as a sentence does
    assert "Traceback" not in answer.text


def test_started_without_allow_write_nothing_can_be_changed(shop: Path, site: Site):
    before = hashlib.sha256(shop.read_bytes()).hexdigest()

    answer = site.ask("/change", method="POST", body={"id": "s1", "action": "delete"})

    assert answer.status == 404
    assert "csrf" not in site.ask("/").text
    assert hashlib.sha256(shop.read_bytes()).hexdigest() == before


def test_it_never_keeps_an_agent_from_writing(path: Path):
    with SessionDB(path) as db, serving(path) as site:
        db.create_session("s", "cli", title="Alive")
        asking = threading.Thread(target=lambda: [site.ask("/session?id=s") for _ in range(20)])
        asking.start()
        for number in range(50):
            db.append_message("s", "user", f"message {number}")
        asking.join()
        assert "message 49" in site.ask("/session?id=s&from=end").text


def test_the_address_a_browser_is_given_opens_once_and_no_token_or_query_is_in_what_it_says(
    shop: Path, tmp_path: Path
):
    given = tmp_path / "given"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {given}.new\nmv {given}.new {given}\n')
    browser.chmod(0o700)
    with serving(shop, "--open", BROWSER=f"{browser} %s") as site:
        while not given.exists():
            assert site.ask("/").status == 200
        once = given.read_text().strip().removeprefix(site.base)
        assert once.startswith("/?token=")
        assert site.token not in once
        assert [site.ask(once, cookie=None).status for _ in range(2)] == [303, 403]
        assert [site.ask(f"/?token={site.token}").status for _ in range(2)] == [303, 303]
        site.ask(f"/search?q={WORD}")
        site.ask("/?min-tokens=many")
        said = site.stop()

    assert said == "Open this address; Ctrl-C stops.\n"
    assert site.process.returncode == 0


def test_without_its_packages_it_says_what_to_install(shop: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [each for each in sys.modules if each.startswith("sessionstore.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)

    result = CliRunner().invoke(main, ["serve", "--db", str(shop)])

    assert result.exit_code == 1
    assert "pip install 'sessionstore[web]'" in result.stderr


def test_a_port_that_is_taken_is_told_in_a_line(shop: Path, site: Site):
    done = subprocess.run(
        [sys.executable, "-m", "sessionstore", "serve", "--db", shop, "--port", str(site.port)],
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == 1
    assert done.stdout == ""
    assert f"port {site.port}: Address already in use; name another with --port" in done.stderr


def test_changes_need_the_pages_own_word_and_a_post(path: Path):
    with SessionDB(path) as db:
        db.create_session("s", "cli", title="One")
        db.create_session("t", "cli", title="Two")
    with serving(path, "--allow-write") as site:
        shown = site.ask("/session?id=s").text
        csrf = shown.partition('name="csrf" value="')[2].partition('"')[0]
        assert len(csrf) > 30

        for word in ({}, {"csrf": ""}, {"csrf": csrf[:-1]}, {"csrf": site.token}):
            form = {"id": "s", "action": "delete", **word}
            assert site.ask("/change", method="POST", body=form).status == 403
        got = site.ask(f"/change?id=s&action=delete&csrf={csrf}")
        assert (got.status, "Go on from one of the links" in got.text) == (405, True)
        big = {"csrf": csrf, "id": "s", "title": "x" * 100_000}
        assert site.ask("/change", method="POST", body=big).status == 413

        def change(session_id: str, action: str, **more: str) -> tuple[int, str]:
            form = {"csrf": csrf, "id": session_id, "action": action, **more}
            answer = site.ask("/change", method="POST", body=form)
            return answer.status, answer.headers.get("location", answer.text)

        assert change("s", "rename", title="Other") == (303, "/session?id=s")
        assert change("s", "pin", **{"from": "list"}) == (303, "/")
        status, told = change("s", "rename", title="Two")
        assert status == 409
        assert "already in use by session t" in told
        assert change("s", "rename", title="x" * 101)[0] == 400
        assert change("nobody", "pin")[0] == 404
        assert change("s", "explode")[0] == 400
        with SessionDB(path, read_only=True) as db:
            kept = db.get_session("s")
            assert kept is not None
            assert (kept["title"], kept["pinned"], kept["archived"]) == ("Other", True, False)
        assert change("s", "archive") == (303, "/session?id=s")
        assert change("s", "delete") == (303, "/")
        with SessionDB(path, read_only=True) as db:
            assert db.get_session("s") is None
            assert db.get_session("t") is not None


def test_a_store_in_which_all_is_put_away_is_not_called_empty(path: Path):
    with SessionDB(path) as db:
        db.create_session("s", "cli", title="Away")
        db.set_session_archived("s", True)
    with serving(path) as site:
        shown = site.ask("/").text
        assert "No conversation is stored here yet" not in shown
        assert "are archived or were started by agents" in shown
        assert "Away" in site.ask("/?all=yes&include-children=yes").text


def test_a_store_whose_file_is_gone_says_so_on_every_page(path: Path):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
    with serving(path, "--allow-write") as site:
        assert '<h2 id="file">' in site.ask("/statistics").text
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink()
        for page in ("/", "/session?id=s", "/statistics"):
            answer = site.ask(page)
            assert answer.status == 503
            assert "not where it was opened" in answer.text


@pytest.mark.slow
def test_a_store_that_is_busy_is_told_as_such_whatever_was_to_be_changed(path: Path):
    with SessionDB(path) as db:
        db.create_session("s", "cli", title="One")
    with serving(path, "--allow-write") as site:
        csrf = site.ask("/session?id=s").text.partition('name="csrf" value="')[2].partition('"')[0]
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        for action in ("rename", "pin"):
            form = {"csrf": csrf, "id": "s", "action": action, "title": "Other"}
            answer = site.ask("/change", method="POST", body=form)
            assert (answer.status, "The store is busy" in answer.text) == (503, True)
        holder.close()
