"""What the page on integrations prints runs as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sessionstore.adapters import google_adk, langchain, openai_agents, pydantic_ai

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text()
CHAPTERS = [chapter.partition("\n") for chapter in PAGE.split("\n## ")[1:]]
EXAMPLES = [
    (title, example)
    for title, _, text in CHAPTERS
    for example in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
]
PRINTED = {
    "OpenAI Agents SDK": "[{'role': 'user', 'content': 'Where is 桂林?'}] Where is >>>桂林<<<?\n",
    "LangChain": "Where is 桂林?\n",
    "Pydantic AI": "[2, 4]\n",
    "Google ADK": "{'user:tz': 'CET'}\n",
    "asyncio without a framework": "['s1']\n",
}


def test_every_example_is_known():
    assert [title for title, _ in EXAMPLES] == list(PRINTED)
    assert PAGE.count("```python") == len(EXAMPLES)
    for adapter in (google_adk, langchain, openai_agents, pydantic_ai):
        (made,) = (name for name in vars(adapter) if name.startswith("SessionStore"))
        assert made in PAGE


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
@pytest.mark.parametrize(("title", "example"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_the_example_runs_as_it_is_printed(
    title: str, example: str, file: Path, monkeypatch, capsys
):
    monkeypatch.chdir(file.parent)

    exec(compile(example, title, "exec"), {})  # noqa: S102 - our own page

    assert capsys.readouterr().out == PRINTED[title]
    assert len([line for line in example.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("name", ["openai_agents", "langchain", "pydantic_ai", "google_adk"])
def test_a_framework_that_is_not_installed_is_told_with_the_extra_that_brings_it(name: str):
    # As in an environment that has the store and nothing else.
    hide = (
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in {'agents', 'langchain_core', 'pydantic_ai', 'google'}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
        f"import sessionstore.adapters.{name}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", hide], capture_output=True, text=True, check=False, timeout=60
    )
    extra = name.replace("_", "-")
    assert f"is not installed: pip install 'sessionstore[{extra}]'" in done.stderr
