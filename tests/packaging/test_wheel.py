"""The wheel: built, installed elsewhere, and put to work on an old file."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from sessionstore.models import SCHEMA_REVISION

ROOT = Path(__file__).parents[2]


def succeed(*command: str | Path, cwd: Path, **env: str) -> str:
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=outer | env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout; the builder is the one that is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    succeed(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_revisions_and_nothing_that_is_not_its_own(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()

    revisions = [name for name in names if name.startswith("sessionstore/migrations/versions/0")]
    in_checkout = list((ROOT / "migrations" / "versions").glob("0*.py"))
    assert len(revisions) == len(in_checkout) == int(SCHEMA_REVISION)
    assert {"sessionstore/py.typed", "sessionstore/migrations/env.py"} <= set(names)
    assert not [name for name in names if name.endswith(".pyc") or name.startswith("tests/")]
    assert {name.split("/")[0].split("-")[0] for name in names} == {"sessionstore"}


def test_an_installed_wheel_upgrades_and_reads_an_old_file(wheel: Path, tmp_path: Path):
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "-q", "--disable-pip-version-check"]
    succeed(*pip, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)
    # The dependencies are those that are installed here; nothing is fetched. A folder added
    # so comes after the wheel, and the checkout that an editable install names does not.
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    here = {str(Path(entry)) for entry in sys.path if entry.endswith("site-packages")}
    (site / "here.pth").write_text("\n".join(sorted(here)))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    old = Path(shutil.copyfile(ROOT / "tests/data/hermes/hermes-v06.db", elsewhere / "state.db"))
    old.chmod(stat.S_IRUSR | stat.S_IWUSR)
    command = tmp_path / "venv" / "bin" / "sessionstore"

    where = succeed(
        python, "-c", "import sessionstore; print(sessionstore.__file__)", cwd=elsewhere
    )
    assert Path(where.strip()).is_relative_to(tmp_path)
    upgraded = succeed(
        command, "db", "upgrade", cwd=elsewhere, SESSIONSTORE_URL="sqlite:///state.db"
    )
    assert f"from Hermes level 6 to {SCHEMA_REVISION}" in upgraded
    assert "大别山" in succeed(command, "search", "大别山", "--db", "state.db", cwd=elsewhere)
    assert "search index  ok" in succeed(command, "db", "check", "--db", "state.db", cwd=elsewhere)


def test_a_store_that_is_up_to_date_opens_without_alembic(tmp_path: Path):
    script = (
        "import sys\n"
        "from sessionstore import SessionDB\n"
        "SessionDB(sys.argv[1]).close()\n"
        "print('alembic' in sys.modules, end=' ')\n"
    )

    def loaded() -> str:
        return succeed(sys.executable, "-c", script, tmp_path / "state.db", cwd=tmp_path)

    assert loaded() == "True "  # it is made by the migrations
    assert loaded() == "False "
