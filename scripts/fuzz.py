#!/usr/bin/env python
"""Feed the parsers with anything at all, guided by which code it reaches, and look for growth.

    python scripts/fuzz.py redact --runs 100000
    python scripts/fuzz.py all --runs 20000
    python scripts/fuzz.py growth

The targets are those of tests/security/targets.py. A fault ends the run, with the input in a
file `crash-...` here; keep it as a small case of tests/security/test_targets.py. `growth` prints
what twice the input costs: near 2 is linear, near 4 is quadratic, and from 3 on it is marked and
the exit status is 1. Times are of the processor, and the least of several.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/security"), str(ROOT)]

UNITS = (
    *("a", "-", " ", "\n", '"', "\\", "[", "{", "a-", "a.b.", "a b ", "é", "e\u0301", "网络", "ﬁ"),
    *("sk-", "sk-proj-", "key=", "password: ", 'password="', "http://u:", "eyJaaaaaa.", "bearer "),
    *("KEY= ", "authorization:", "-----BEGIN PRIVATE KEY-----", "ghp_", "1:", "cookie: ", "<b>"),
    *("AND ", "NOT ", "x* ", '"a b" '),
)
SIZES = (100_000, 200_000, 400_000)
QUADRATIC = 3.0
# Below that a difference is noise.
LEAST_S = 0.05
# Beyond that once is enough.
LONG_S = 10


def fuzz(name: str, runs: int) -> None:
    """Run one target; ends the process."""
    try:
        import atheris
    except ImportError:
        sys.exit(
            "atheris is not installed, and it has no wheel for every platform; where it has: "
            "pip install 'sessionstore[fuzz]'. The same targets run without it: "
            "pytest tests/security/test_targets.py"
        )
    with atheris.instrument_imports(include=["sessionstore"]):
        targets = importlib.import_module("targets")
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(targets.SEEDS[name]):
            (Path(corpus) / str(number)).write_bytes(seed)
        options = [f"-runs={runs}", "-max_len=512", "-timeout=30", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *options, corpus], targets.TARGETS[name])
        atheris.Fuzz()


def growth() -> int:
    """Print what doubling the input costs each part, at its worst unit; count the quadratic."""
    from sessionstore.cli.importing import _lines  # noqa: F401 - what loads late is loaded first
    from sessionstore.codec import decode_content
    from sessionstore.export.text import file_name, one_line
    from sessionstore.redact import redact
    from sessionstore.search.fold import fold
    from sessionstore.search.query import MAX_QUERY_CHARACTERS, matches, parse
    from sessionstore.search.snippet import snippet

    logging.disable(logging.CRITICAL)
    tree = parse("zebra OR a OR 络")
    phrase = parse('"a b" OR e OR "网 络" OR sk*')

    parts: dict[str, Callable[[str], object]] = {
        "redact": redact,
        "fold": fold,
        "match": lambda text: matches(phrase, fold(text)) if phrase else None,
        "snippet": lambda text: snippet(tree, text) if tree else None,
        "content": lambda text: decode_content(text, "json"),
        "one line": one_line,
        "file name": file_name,
        # A query has a longest length, so many of them take the place of a longer one.
        "query": lambda text: [
            parse(text[at : at + MAX_QUERY_CHARACTERS])
            for at in range(0, len(text), MAX_QUERY_CHARACTERS)
        ],
    }
    found = 0
    for name, part in parts.items():
        worst = max((ratio(part, unit), unit) for unit in UNITS)
        (factor, seconds), unit = worst
        mark = "  QUADRATIC?" if factor >= QUADRATIC else ""
        found += bool(mark)
        shown = f"{SIZES[-1]:,} characters of {unit!r} took {seconds:.2f} s"
        print(f"{name:<10} x{factor:.1f} for twice the input ({shown}){mark}", flush=True)
    return found


def ratio(part: Callable[[str], object], unit: str) -> tuple[float, float]:
    """Say by how much the cost grew from half of the largest input to it, and that cost."""
    costs = []
    for size in SIZES:
        text = unit * (size // len(unit))
        took = []
        for _ in range(2):
            began = time.process_time()
            part(text)
            took.append(time.process_time() - began)
            if took[-1] > LONG_S:
                break
        costs.append(min(took))
    if costs[-1] < LEAST_S:
        return 0.0, costs[-1]
    return costs[-1] / max(costs[-2], LEAST_S / 4), costs[-1]


def main() -> None:
    """Read the command line."""
    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = ("query", "snippet", "content", "redact", "import", "reader", "names", "terminal")
    reader.add_argument("target", choices=(*names, "all", "growth"))
    reader.add_argument("--runs", type=int, default=50_000, help="How many inputs.")
    asked = reader.parse_args()
    if asked.target == "growth":
        sys.exit(1 if growth() else 0)
    if asked.target != "all":
        fuzz(asked.target, asked.runs)
    for name in names:  # each in a process of its own: the fuzzer ends it
        print(f"== {name}", flush=True)
        command = [sys.executable, __file__, name, f"--runs={asked.runs}"]
        if (status := subprocess.run(command, check=False).returncode) != 0:
            sys.exit(status)


if __name__ == "__main__":
    main()
