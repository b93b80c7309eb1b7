"""What people see and do in a real browser, with every request it makes written down."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from browser import Browser
from web_helpers import THEN, WORD, Site, serving

from sessionstore import SessionDB

RUNS = "document.title='RAN'"
HOSTILE = (
    f"<script>{RUNS}</script>",
    f'<img src=x onerror="{RUNS}">',
    f'"\'><svg onload="{RUNS}">',
    f"</pre></code></details></textarea></title><script>{RUNS}</script>",
    f'<iframe srcdoc="<script>parent.{RUNS}</script>"></iframe>',
    f'{{{{ 1 }}}}{{% x %}}<details open ontoggle="{RUNS}">x</details>',
    f"[x](javascript:{RUNS}) ![x](http://evil.test/md.png) <http://evil.test/auto>",
    f'```html"><script>{RUNS}</script>\n<script>{RUNS}</script>\n```',
    f"```js\n</code></pre><script>{RUNS}</script>\n```",
    f'" onfocus="{RUNS}" autofocus="',
    "<img src=http://evil.test/html.png><link rel=stylesheet href=http://evil.test/a.css>",
    "<meta http-equiv=refresh content='0;url=http://evil.test/r'><base href=http://evil.test/>",
    "<style>@import url(http://evil.test/b.css);</style><form action=http://evil.test/><button>",
    "half \ud83d a pair \x1b[31m \u202e turned",
)


def axe(browser: Browser) -> list[str]:
    """Give what the checker of accessibility finds in the page, serious or worse."""
    spec = find_spec("axe_core_python")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    script = Path(spec.submodule_search_locations[0]) / "axe.min.js"
    browser.run(script.read_text("utf-8"))
    found = browser.run(
        "axe.run().then((r) => r.violations.map((v) =>"
        " [v.impact, v.id, v.nodes.slice(0, 3).map((n) => n.html)]))"
    )
    return [str(each) for each in found if each[0] in ("serious", "critical")]


def stays_here(browser: Browser, site: Site) -> bool:
    return bool(browser.asked) and all(each.startswith(site.base + "/") for each in browser.asked)


def test_the_token_is_gone_from_the_address_and_the_list_has_the_pinned_and_newest_first(
    browser: Browser, site: Site
):
    assert browser.open(site.address) == 200

    assert browser.run("location.href") == f"{site.base}/"
    titles = browser.texts("#list [data-item]")
    # The two that were written to just now, and then the part of a chain that goes on.
    assert titles[0] == "Talk 99"
    assert set(titles[1:3]) == {"Talk 3", "Talk 4"}
    assert titles[3:6] == ["going on", "Hello 0", "Talk 1"]
    assert "Talk 98" not in titles  # it was archived
    assert browser.said == []
    assert stays_here(browser, site)


def test_the_list_goes_on_as_one_scrolls_to_its_very_end(page: Browser, site: Site):
    page.until("(scrollTo(0, document.body.scrollHeight), !document.querySelector('#more a'))")

    titles = page.texts("#list [data-item]")
    assert len(titles) == len(set(titles)) == 130  # 132, without the archived, a chain as one
    assert titles[-1] == "The long one"


def test_without_script_pages_are_turned_by_links(page: Browser, site: Site):
    page.scripts(run=False)
    page.call("Page.navigate", url=f"{site.base}/")
    page.scripts(run=True)
    page.until("location.pathname === '/'")
    more = page.run("document.querySelector('#more a').href")

    assert "Talk 3" in site.ask("/").text
    second = site.ask(more.removeprefix(site.base)).text
    assert ">Talk 60<" in second
    assert ">Talk 10<" not in second


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("source=cli&min-tokens=1", []),
        ("min-tokens=1", ["Talk 1"]),
        ("model=BETA&title=talk+12", ["Talk 121", "Talk 123", "Talk 125", "Talk 127", "Talk 129"]),
        ("archived=yes", ["Talk 98"]),
        ("pinned=yes&source=&title=", ["Talk 99"]),
        ("before=2025-06-14T20:00:00Z", ["The long one"]),
    ],
)
def test_the_filters_of_the_command_line_stand_in_the_address(
    page: Browser, site: Site, query: str, titles: list[str]
):
    assert page.open(f"{site.base}/?{query}") == 200

    assert page.texts("#list [data-item]") == titles
    assert "=&" not in page.run("location.href + '&'")  # what was left empty asks nothing
    if not titles:
        assert "No conversation matches. Show all" in page.text()


def test_search_finds_as_one_types_in_chinese_too_and_a_hit_opens_at_its_message(
    page: Browser, site: Site
):
    page.press("/")
    page.write("zebra")
    page.press("Enter")
    page.until("location.pathname === '/search' && document.querySelector('.hit')")
    page.run(
        "document.querySelector('[data-search]').select();"
        "document.querySelector('[data-search]').focus()"
    )
    page.write("网络")
    page.until("new URLSearchParams(location.search).get('q') === '网络'")

    assert page.text("#said") == "2 messages in 1 conversation."
    assert page.texts(".group h2") == ["Talk 3"]
    assert set(page.texts("mark")) == {"网络"}
    assert WORD in page.text(".context")  # what was said before it

    page.click(".hit:last-child [data-item], .hit [data-item]")
    page.until("location.pathname === '/session'")
    page.until("document.querySelector('.message.asked')")
    assert page.run(
        "(() => { const at = document.querySelector('.asked').getBoundingClientRect();"
        " return at.top >= 0 && at.top < innerHeight; })()"
    )
    page.press("Escape")
    page.until("location.pathname === '/search'")
    assert page.run("document.querySelector('[data-search]').value") == "网络"


def test_a_search_says_that_nothing_was_found_and_when_the_index_is_broken(
    page: Browser, site: Site, path: Path, browser: Browser
):
    page.open(f"{site.base}/search?q=nowhere-to-be-found")
    assert "Nothing found" in page.text("#said")

    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_message("s", "user", f"the {WORD}")
        db._write(lambda c: c.exec_driver_sql("DROP TABLE messages_fts"))
    with serving(path) as broken:
        browser.open(f"{broken.address}")
        browser.open(f"{broken.base}/search?q={WORD}")
        assert browser.texts("mark") == [WORD]
        assert "Slower than it should be" in browser.text("#results")


def test_a_conversation_sets_apart_roles_and_folds_calls_reasoning_and_long_results(
    page: Browser, site: Site
):
    page.open(f"{site.base}/session?id=s3")

    assert page.texts(".who b") == ["user", "user", "assistant", "tool", "assistant"]
    assert page.texts(".text strong") == ["bold"]
    assert page.texts("pre .k") == ["def", "return"]
    colour = "getComputedStyle(document.querySelector('pre .k')).color"
    assert page.run(colour) == "rgb(122, 60, 150)"
    assert page.run("document.querySelectorAll('.message details[open]').length") == 0
    folded = page.texts(".message summary")
    assert folded[:2] == ["Reasoning", "Calls terminal"]
    assert "(2,500 characters)" in folded[2]
    assert "ls 网络" in page.texts(".message details pre")[1]
    assert "All 30,000 characters" in page.text()


def test_what_was_compacted_or_undone_is_marked_and_folded(page: Browser, site: Site):
    page.open(f"{site.base}/session?id=s4")

    folded = page.texts(".gone > summary")
    assert any("compacted: a summary stands for" in each for each in folded)
    assert any("undone" in each for each in folded)
    assert not page.run("document.querySelector('.gone .message').checkVisibility()")
    first = page.run("document.querySelector('.gone .message').id.slice(1)")
    page.open(f"{site.base}/session?id=s4&at={first}#m{first}")
    assert page.run("document.querySelector('.gone .message').checkVisibility()")


def test_the_parts_of_a_chain_lead_to_each_other(page: Browser, site: Site):
    page.open(f"{site.base}/session?id=s5")
    assert "part 1 of 2" in page.text(".chain")
    page.click(".chain a[rel=next]")
    page.until("location.search === '?id=s5b'")
    assert "part 2 of 2" in page.text(".chain")
    assert page.texts(".chain a") == ["← The part before"]


def test_a_message_is_copied_and_the_conversation_downloaded_in_every_format(
    page: Browser, site: Site
):
    page.call(
        "Browser.grantPermissions",
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )
    page.open(f"{site.base}/session?id=s3")
    page.run("window.copied = null; navigator.clipboard.writeText = (t) => { copied = t; }")
    page.click(".message:nth-of-type(2) [data-copy]")
    assert "检查网络配置, the" in page.until("copied")
    page.until(
        "document.querySelector('.message:nth-of-type(2) [data-copy]').textContent === 'Copied'"
    )

    links = page.run("[...document.querySelectorAll('a[download]')].map((a) => a.href)")
    beginnings = {}
    for link in links:
        answer = site.ask(link.removeprefix(site.base))
        assert answer.status == 200
        assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''s3.")
        beginnings[link.rpartition("=")[2]] = answer.text[:9]
        assert WORD in answer.text
    assert beginnings == {
        "jsonl": '{"id": "s',
        "md": "---\ntitle",
        "qmd": "---\ntitle",
        "html": "<!DOCTYPE",
        "trace": '{"type": ',
    }


def test_a_long_conversation_opens_in_part_and_the_place_is_kept(
    page: Browser, site: Site, long: int
):
    page.open(f"{site.base}/session?id=long")
    assert f"{long:,} messages" in page.text(".ends")
    assert page.run("document.querySelectorAll('.message').length") == 60

    first = page.run("+document.querySelector('.message').id.slice(1)")
    middle = first + long // 2
    page.open(f"{site.base}/session?id=long&at={middle}#m{middle}")
    assert f"number {long // 2}" in page.text(f"#m{middle}")
    first_id = "+document.querySelector('.message').id.slice(1)"
    for _ in range(6):
        # What stood first stays where it is when others come before it.
        page.run("document.querySelector('#earlier').scrollIntoView({block: 'center'})")
        first = page.run(first_id)
        top = f"document.querySelector('#m{first}').getBoundingClientRect().top"
        stood = page.run(top)
        page.click("#earlier a")
        page.until(f"{first_id} < {first}")
        assert abs(page.run(top) - stood) < 60
    numbers = page.run("[...document.querySelectorAll('.message')].map((e) => +e.id.slice(1))")
    assert 240 <= len(numbers) <= 300
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))

    page.run("document.querySelectorAll('.message')[100].scrollIntoView()")
    asked = "new URLSearchParams(location.search).get('at')"
    kept = page.until(f"{asked} !== '{middle}' && {asked}")
    page.reload()
    assert abs(page.run(f"document.querySelector('#m{kept}').getBoundingClientRect().top")) < 150

    page.open(f"{site.base}/session?id=long&from=end")
    assert page.texts(".message .text")[-1] == f"number {long - 1}"
    assert page.texts("#later a") == []


def test_reading_on_in_a_long_conversation_never_throws_back(page: Browser, site: Site):
    page.open(f"{site.base}/session?id=long")
    first = "+document.querySelector('.message').id.slice(1)"
    last = "+[...document.querySelectorAll('.message')].at(-1).id.slice(1)"
    begin = page.run(first)
    seen = (
        "(() => { const at = [...document.querySelectorAll('.message')]"
        ".find((e) => e.getBoundingClientRect().bottom > 60);"
        " return [+at.id.slice(1), at.getBoundingClientRect().top]; })()"
    )
    while page.run(first) == begin or page.run(last) < begin + 400:
        page.run("scrollBy(0, 600)")
        stood, ended = page.run(seen), page.run(last)
        if page.run("document.querySelector('#later').getBoundingClientRect().top") < 1000:
            page.until(f"{last} > {ended}")
        page.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")
        number, top = page.run(seen)
        assert abs(number - stood[0]) <= 1
        assert number != stood[0] or abs(top - stood[1]) < 60


def test_what_is_read_stays_however_much_before_it_was_compacted(browser: Browser, path: Path):
    with SessionDB(path) as db:
        db.create_session("s", "cli")
        db.append_messages("s", [{"role": "user", "content": f"old {n}"} for n in range(1000)])
        live = [{"role": "user", "content": f"new {n}" + "\n\nline" * 9} for n in range(2)]
        db.archive_and_compact("s", live)
    with serving(path) as site:
        browser.open(site.address)
        browser.open(f"{site.base}/session?id=s&from=end")
        first = "document.querySelector('.message').id"
        begin = browser.run(first)
        browser.run("scrollTo(0, 1)")
        browser.until(f"{first} !== '{begin}'")
        browser.until("document.querySelector('#earlier').getBoundingClientRect().bottom < -400")
        seen = browser.texts("#messages > .message .text")
        ids = browser.run("[...document.querySelectorAll('.message')].map((e) => +e.id.slice(1))")
    assert [each.split("line")[0].strip() for each in seen] == ["new 0", "new 1"]
    assert ids == list(range(ids[0], 1003))


def test_keys_move_open_and_go_back(page: Browser, site: Site):
    page.press("j", "j", "j", "k")
    assert page.run("document.activeElement.textContent") == page.texts("#list [data-item]")[1]
    page.press("Enter")
    page.until("location.pathname === '/session'")
    page.press("j")
    assert page.run("document.activeElement.className").startswith("message")
    page.press("Escape")
    page.until("location.pathname === '/'")
    page.press("/")
    page.until("document.activeElement.name === 'q'")
    page.press("j")  # now it is a letter
    assert page.run("document.activeElement.value") == "j"


def test_statistics_draw_what_the_tables_say(page: Browser, site: Site):
    page.open(f"{site.base}/statistics")

    assert "132 sessions, " in page.text()
    assert page.texts("h2") == ["By day", "By source", "By model", "The file"]
    assert page.texts("figcaption") == ["Sessions", "Messages", "Tokens", "Cost"] * 3
    assert "telegram: 65" in page.run("document.querySelectorAll('figure')[4].textContent")
    assert page.texts("section:nth-of-type(2) tbody th") == ["telegram", "cli"]
    assert "12,345" in page.text("section:nth-of-type(2)")
    assert "$0.5000 (known for 1)" in page.text("section:nth-of-type(2)")
    parts = page.texts("#parts th[scope=row]")
    if not parts:  # a larger file is counted when it is asked for
        page.click("#parts a")
        page.until("document.querySelector('#parts table')")
        parts = page.texts("#parts th[scope=row]")
    assert parts[:3] == ["Messages", "Index of words", "Index of trigrams"]


def test_statistics_of_costs_that_no_money_counts_are_drawn_and_fit(browser: Browser, path: Path):
    with SessionDB(path) as db:
        for name, cost in (("a", 0.5), ("b", 1e300), ("c", 1e308), ("d", 1e308)):
            db.create_session(name, "ab" if name < "c" else "cd", started_at=THEN)
            db.update_token_counts(name, actual_cost_usd=cost)
    with serving(path) as site:
        browser.open(site.address)
        browser.size(320, 600)
        browser.said.clear()
        browser.open(f"{site.base}/statistics")
        assert browser.run("document.documentElement.scrollWidth") <= 320
        assert "$1e+300" in browser.text()
    assert browser.said == []


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1000),
        ("dark", 400),
        pytest.param("light", 400, marks=pytest.mark.slow),
        pytest.param("dark", 1000, marks=pytest.mark.slow),
    ],
)
def test_nothing_serious_keeps_anybody_from_using_it(
    page: Browser, site: Site, scheme: str, width: int
):
    page.scheme(scheme)
    page.size(width, 800)
    for where in (
        "/",
        "/?archived=yes&title=x",
        "/search?q=网络&role=user",
        "/search",
        "/session?id=s3",
        "/session?id=s4",
        "/statistics",
        "/session?id=nobody",
    ):
        page.open(site.base + where)
        page.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert axe(page) == [], where
        wide = page.run("document.documentElement.scrollWidth")
        assert wide <= width, where
        assert page.run(
            "[...document.querySelectorAll('time')].every((t) => t.dateTime && t.title)"
        )
    assert stays_here(page, site)


def test_nothing_that_is_stored_runs_or_asks_another_machine(browser: Browser, path: Path):
    with SessionDB(path) as db:
        # Two at a time: what ends the one must not begin the other either.
        pairs = [f"{one}\n\n{two}" for one, two in zip(HOSTILE[::2], HOSTILE[1::2], strict=True)]
        for number, evil in enumerate(pairs):
            plain = evil.encode("utf-8", "replace").decode()
            name = f"{number} {plain}"
            db.create_session(name, plain, model=plain, system_prompt=plain, user_id=plain)
            db.set_session_title(name, plain[:100])
            call = {"id": evil, "function": {"name": evil, "arguments": evil}}
            db.append_messages(
                name,
                [
                    {"role": "user", "content": f"{WORD} {evil}"},
                    {
                        "role": "assistant",
                        "content": [evil],
                        "reasoning": evil,
                        "reasoning_content": evil,
                        "tool_calls": [call],
                    },
                    {"role": "tool", "content": evil * 20, "tool_name": evil},
                    {"role": plain, "content": evil},
                ],
            )
            db.end_session(name, plain)
    with serving(path, "--allow-write") as site:
        browser.open(site.address)
        # So something that ran, or asked, would be seen.
        browser.run(f"{RUNS}")
        assert browser.run("document.title") == "RAN"
        pages = ["/", f"/search?q={WORD}", "/statistics"]
        browser.open(f"{site.base}/")
        links = browser.run(
            "[...document.querySelectorAll('#list [data-item]')].map((a) => a.href)"
        )
        assert len(links) == len(pairs)
        pages += [each.removeprefix(site.base) for each in links]
        pages += [each.removeprefix(site.base).replace("/session", "/delete") for each in links[:2]]
        browser.asked.clear()
        browser.said.clear()
        for where in pages:
            assert browser.open(site.base + where) == 200, where
            browser.run("document.querySelectorAll('details').forEach((e) => { e.open = true; })")
            browser.run("document.querySelectorAll('[data-item]').forEach((e) => e.focus())")
            assert browser.run("document.title") != "RAN", where
            assert browser.run(
                "[...document.querySelectorAll('main a')].every((a) =>"
                f" a.href.startsWith('{site.base}/'))"
            )
            assert (
                browser.run(
                    "document.querySelectorAll('main :is(script, iframe, img, style,"
                    " link, meta, base, object)').length"
                )
                == 0
            ), where
        assert stays_here(browser, site)
        # The policy had nothing to forbid: no such thing got as far as that.
        assert browser.said == []
        for link in links[:3]:
            text = browser.run(
                f"fetch({(link + '&message=1').replace('/session', '/text')!r})"
                ".then((r) => r.headers.get('content-type'))"
            )
            assert text.startswith("text/")


def test_a_conversation_is_pinned_renamed_archived_and_deleted_with_a_question(
    browser: Browser, path: Path
):
    with SessionDB(path) as db:
        db.create_session("s", "cli", title="One")
        db.append_message("s", "user", "hello")
    with serving(path, "--allow-write") as site:
        browser.open(site.address)
        browser.click(".acts button[value=pin]")
        browser.until("document.querySelector('.badge')?.textContent === 'pinned'")
        browser.click("#list [data-item]")
        browser.until("location.pathname === '/session' && document.querySelector('.acts')")
        browser.run("document.querySelector('[name=title]').value = 'Another'")
        browser.click(".acts button[value=rename]")
        browser.until("document.querySelector('h1').textContent === 'Another'")
        browser.click(".acts a.danger")
        browser.until("location.pathname === '/delete'")
        assert "Delete “Another” for good?" in browser.text("h1")
        assert "1 message would go" in browser.text()
        with SessionDB(path, read_only=True) as db:
            assert db.get_session("s") is not None
        browser.click("button.danger")
        browser.until("location.pathname === '/' && document.querySelector('.empty')")
        assert "No conversation is stored here yet" in browser.text()
    with SessionDB(path, read_only=True) as db:
        assert db.get_session("s") is None
