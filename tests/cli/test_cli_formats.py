"""md, qmd, html, trace and redaction: what leaves, and what never does."""

from __future__ import annotations

import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import THEN, Run, files_in, process, sha256

from sessionstore import SessionDB, StoreSettings
from sessionstore.export.text import file_name

KEY = "sk-" + "TESTabcdef1234567890"
IMG = "<img src=x onerror=alert(1)>"
EVIL = (
    f'{IMG} "><script>alert(1)</script> ![a](http://example.test/p.png) '
    "[l](javascript:alert(1)) [k](http://example.test/k) <http://auto.test/> "
    "javascript:alert(1)\n\n<svg onload=alert(1)><style>@import 'http://e.test/x'</style>"
    "\n\n```html\n</code></pre><script>alert(2)</script>\n```\n\u202eover \ud83d half"
)
FORMATS = ("jsonl", "md", "qmd", "html", "trace")


@pytest.fixture
def hostile(path: Path) -> Path:
    """A conversation that tries everything, with a key in each of its parts."""
    settings = StoreSettings(clock=lambda: THEN)
    arguments = json.dumps({"cmd": f"</pre><script>alert(1)</script> {KEY}", "api_key": "inner"})
    call = {"id": "c1", "type": "function", "function": {"name": IMG, "arguments": arguments}}
    with SessionDB(path, settings=settings) as db:
        db.create_session(
            f"id/../{KEY}",
            "cli",
            model=IMG,
            title=f"{IMG} {KEY}",
            system_prompt=f"{IMG} {KEY}",
            model_config={"note": f"{EVIL} {KEY}", KEY: "as a key"},
        )
        db.append_messages(
            f"id/../{KEY}",
            [
                {"role": "user", "content": f"{EVIL} {KEY}", "timestamp": 1781773226.453548},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": f"{EVIL} {KEY}"}, {"type": "image"}],
                    "reasoning": f"{EVIL} {KEY}",
                    "tool_calls": [call],
                },
                {"role": "tool", "content": EVIL * 3 + KEY, "tool_name": IMG, "tool_call_id": "c1"},
                {"role": IMG, "content": EVIL},
            ],
        )
    return path


def exported(path: Path, form: str, target: Path, *options: str) -> str:
    """Export with the real command; give all that was written, names included."""
    done = process("export", "--format", form, "-o", str(target), *options, "--db", str(path))
    assert done.returncode == 0, done.stderr
    if target.is_dir():
        return "".join(f"{each.name}\n{each.read_text()}" for each in sorted(target.iterdir()))
    return target.read_text()


@pytest.mark.parametrize("form", FORMATS)
def test_no_secret_leaves_in_any_format(hostile: Path, tmp_path: Path, form: str):
    before = sha256(hostile)

    text = exported(hostile, form, tmp_path / "out", "--redact")

    assert KEY not in text
    assert "inner" not in text
    assert "[redacted]" in text
    assert sha256(hostile) == before


@pytest.mark.parametrize("form", FORMATS)
def test_without_redaction_it_is_said_that_secrets_may_be_inside(
    hostile: Path, tmp_path: Path, form: str
):
    options = ["--no-redact"] if form == "trace" else []
    done = process(
        "export", "--format", form, "-o", str(tmp_path / "out"), *options, "--db", str(hostile)
    )
    assert b"secrets may be inside" in done.stderr
    assert KEY in exported(hostile, form, tmp_path / "again", *options)


def test_a_trace_is_always_redacted_and_has_the_real_times(hostile: Path, tmp_path: Path):
    text = exported(hostile, "trace", tmp_path / "out.jsonl")
    assert KEY not in text
    lines = [json.loads(line) for line in text.splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds == ["summary", "system", "user", "assistant", "user", "user"]
    assert lines[2]["timestamp"] == "2026-06-18T09:00:26.453548Z"
    assert [line["parentUuid"] for line in lines[2:]] == [line["uuid"] for line in lines[1:-1]]
    blocks = lines[3]["message"]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "image", "tool_use"]
    assert blocks[-1]["id"] == lines[4]["message"]["content"][0]["tool_use_id"] == "c1"


class _Page(html.parser.HTMLParser):
    """Collects elements, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.script = ""
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag else self._open

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.script += data
        elif self._open != "style":
            self.text += data


def test_nothing_that_is_stored_can_run_in_the_page(hostile: Path, tmp_path: Path):
    written = exported(hostile, "html", tmp_path / "out.html")
    page = _Page()
    page.feed(written)

    tags = {tag for tag, _ in page.found}
    assert not tags & {"img", "svg", "iframe", "object", "embed", "link", "base", "form", "script"}
    for tag, attributes in page.found:
        assert not {name for name in attributes if name.startswith("on")}
        assert not {"src", "srcset", "action", "style", "formaction"} & set(attributes)
        if tag == "a":
            assert str(attributes["href"]).startswith("#")
    (policy,) = [a["content"] for t, a in page.found if a.get("http-equiv")]
    assert str(policy).startswith("default-src 'none'")
    for text in (IMG, "http://example.test/p.png", "alert(2)", "\\u202eover", "\\ud83d half"):
        assert text in page.text
    assert "\u202e" not in written


def test_a_page_of_many_has_an_index_and_a_script_of_our_own_alone(run: Run, tmp_path: Path):
    target = tmp_path / "out.html"
    assert run("export", "-o", str(target)).exit_code == 0
    page = _Page()
    page.feed(target.read_text())

    anchors = [a["href"] for tag, a in page.found if tag == "a"]
    ids = {a.get("id") for tag, a in page.found if tag == "article"}
    assert {str(each)[1:] for each in anchors} == ids
    assert len(ids) == 4
    assert (
        page.script.strip()
        == (Path(__file__).parents[2] / "sessionstore/export/pages/filter.js").read_text().strip()
    )
    assert not re.search(r"https?://", target.read_text())
    assert "检查网络配置" in page.text


def test_markdown_makes_a_file_each_and_replaces_none(run: Run, tmp_path: Path):
    folder = tmp_path / "notes"
    assert run("export", "--format", "md").exit_code == 2
    assert run("export", "--format", "md", "-o", str(folder)).exit_code == 0
    assert files_in(folder) == {
        "20250101_a1.md", "20250101_a2.md", "20250101_a1sub.md", "lone.md",
    }  # fmt: skip
    text = (folder / "20250101_a1.md").read_text()
    assert text.startswith('---\ntitle: "Fix the build"\n')
    assert "\n# Fix the build\n" in text
    assert "\n## Assistant\n" in text
    assert '```json\n{\n  "name": "terminal",\n  "arguments": {\n    "command": "ls 网络"' in text

    (folder / "lone.md").write_text("mine")
    assert run("export", "--format", "md", "-o", str(folder)).exit_code == 1
    assert (folder / "lone.md").read_text() == "mine"
    assert run("export", "--format", "md", "-o", str(folder), "--force").exit_code == 0
    one = run("export", "--format", "qmd", "--session", "lone").stdout
    assert "execute:\n  enabled: false\n" in one


def test_a_fence_cannot_be_ended_from_within(run: Run, filled: Path):
    with SessionDB(filled) as db:
        db.append_message("lone", "tool", "````\n# not a heading\n`````", tool_name="t")
    text = run("export", "--format", "md", "--session", "lone").stdout
    assert "``````text\n````\n# not a heading\n`````\n``````" in text


@pytest.mark.parametrize(
    "session_id",
    ["../../etc/passwd", "/etc/passwd", "..", ".", "-rf", "a\0b", "a\nb", "CON", "nul.txt",
     "x" * 500, "网络", "\u202eabc", "a\\b", "C:\\x", "~", ".hidden", "%2e%2e", "A"],
)  # fmt: skip
def test_no_id_is_a_path(session_id: str):
    name = file_name(session_id)

    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}", name)
    assert Path(name).name == name
    assert not re.match(r"(?i)(con|nul)(\.|$)", name)
    assert name != file_name(session_id + "x")
    assert file_name("A").lower() != file_name("a").lower()


def test_a_chain_can_be_one_conversation(run: Run, filled: Path):
    with SessionDB(filled) as db:
        db.continue_session("lone", "next")
        db.append_message("next", "user", "second part")
    single = run("export", "--source", "telegram").stdout.splitlines()
    (logical,) = run("export", "--source", "telegram", "--lineage", "logical").stdout.splitlines()

    assert len(single) == 2
    whole = json.loads(logical)
    assert whole["id"] == "next"
    assert whole["message_count"] == 2
    assert [each["content"] for each in whole["messages"]][1] == "second part"
    assert whole["started_at"] == json.loads(single[0])["started_at"]
    (named,) = run("export", "--session", "lone", "--lineage", "logical").stdout.splitlines()
    assert named == logical


def test_live_only_leaves_out_what_a_summary_stands_for(run: Run, filled: Path):
    with SessionDB(filled) as db:
        db.archive_and_compact("20250101_a1", [{"role": "user", "content": "summary"}])

    def count(*options: str) -> int:
        line = run("export", "--session", "20250101_a1", *options).stdout
        return len(json.loads(line)["messages"])

    assert (count(), count("--live-only")) == (5, 1)


def test_an_export_comes_back_by_import_even_redacted(run: Run, tmp_path: Path):
    for options in ([], ["--redact"], ["--lineage", "logical"]):
        sessions = [json.loads(line) for line in run("export", *options).stdout.splitlines()]
        with SessionDB(tmp_path / f"copy{len(options)}{options}.db") as db:
            assert len(db.import_sessions(sessions)["imported"]) == len(sessions)


# The peak of this program alone: that of getrusage counts the one that started it as well.
MEASURE = """
import re, sys, contextlib, pathlib
from sessionstore.cli import main
with contextlib.suppress(SystemExit):
    main(sys.argv[1:])
status = pathlib.Path("/proc/self/status").read_text()
print(re.search(r"VmHWM:\\s*(\\d+)", status)[1], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten thousand messages, half of them in sessions of fifty, half in one alone."""
    path = tmp_path_factory.mktemp("large") / "state.db"
    message = {"role": "user", "content": "word " * 100}
    with SessionDB(path) as db:
        for number in range(100):
            db.create_session(f"s{number:03}", "cli")
            db.append_messages(f"s{number:03}", [message] * 50)
        db.create_session("long", "cli")
        db.append_messages("long", [message] * 5000)
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing tells the memory")
@pytest.mark.parametrize("form", ["jsonl", "html"])
def test_ten_thousand_messages_pass_through_little_memory(large: Path, tmp_path: Path, form: str):
    def peak_kb(*options: str) -> int:
        run = [sys.executable, "-c", MEASURE, "export", "--db", str(large), "--format", form,
               "-o", str(tmp_path / "out"), "--no-redact", *options]  # fmt: skip
        done = subprocess.run(run, capture_output=True, check=True, text=True)
        return int(done.stderr.splitlines()[-1])

    little = peak_kb("--session", "s000")
    assert peak_kb("--max-messages", "50") - little < 4_000
    # A session is read in one piece, to be whole: its messages are in memory once.
    assert peak_kb() - little < 15_000
