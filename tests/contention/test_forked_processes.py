"""A process that is forked off under an open store is told so, and harms nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sessionstore import SessionDB

# In a process of its own, which has no threads when it forks.
BEGIN = """
import multiprocessing, os, sqlite3, sys
from sessionstore import SessionDB, StoreForkedError, StoreUnavailableError

path, other = sys.argv[1:]
fork = multiprocessing.get_context("fork")

def told(call):
    try:
        return call()
    except StoreForkedError as error:
        assert isinstance(error, StoreUnavailableError)
        assert "after the fork" in str(error)
        return "forked"

def in_child(*calls):
    ours, theirs = fork.Pipe()
    process = fork.Process(target=lambda: theirs.send([told(call) for call in calls]))
    process.start()
    assert ours.poll(60)
    said = ours.recv()
    process.join()
    assert process.exitcode == 0
    return said

def append(db):
    return lambda: db.append_message("s", "user", "from a child")

def append_anew(path, session_id="s"):
    def call():
        with SessionDB(path) as db:
            db.create_session(session_id, "cli")
            return db.append_message(session_id, "user", "from a child")
    return call
"""

OPEN = """
db = SessionDB(path)
db.create_session("s", "cli")
db.append_message("s", "user", "from the parent")
assert in_child(
    append(db), db.list_sessions_rich, db.vacuum, db.close, append_anew(path),
    lambda: SessionDB(path, read_only=True),
) == ["forked", "forked", "forked", None, "forked", "forked"]
inode = os.stat(path + "-wal").st_ino
assert db.append_message("s", "user", "from the parent") == 2
assert os.stat(path + "-wal").st_ino == inode
# Another file is another matter.
assert in_child(append_anew(other)) == [1]
assert db.append_message("s", "user", "from the parent") == 3
db.close()
assert in_child(append_anew(path)) == [4]
"""

READ_ONLY = """
append_anew(path)()
with SessionDB(path, read_only=True) as db:
    assert in_child(db.message_count, append_anew(path)) == ["forked", 2]
    assert db.message_count() == 2
"""

EXIT = """
with SessionDB(path) as db:
    db.create_session("s", "cli")
    db.append_message("s", "user", "from the parent")
    inode = os.stat(path + "-wal").st_ino
    child = os.fork()
    if child == 0:
        # Leaves the block, and the interpreter takes down all that is left.
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.stat(path + "-wal").st_ino == inode
    # The parent still holds its locks: nobody else is the last to close.
    sqlite3.connect(path).close()
    assert os.stat(path + "-wal").st_ino == inode
    assert db.append_message("s", "user", "from the parent") == 2
"""

IN_LINE = """
import threading
with SessionDB(path) as db:
    db.create_session("s", "cli")
    held, forked = threading.Event(), threading.Event()
    def hold():
        held.set()
        forked.wait(60)
    holding = threading.Thread(target=db._database.queue.run, args=(hold,))
    holding.start()
    held.wait()
    ours, theirs = fork.Pipe()
    # A daemon, so that it does not outlive a check that fails here.
    child = fork.Process(target=lambda: (theirs.send("there"), theirs.recv()), daemon=True)
    child.start()
    assert ours.recv() == "there"
    forked.set()
    holding.join()
    # The child, which lives on, does not hold the queue for the parent.
    import fcntl
    other = os.open(path + "-lock", os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    theirs_open = f"/proc/{child.pid}/fd/"
    links = [os.readlink(theirs_open + each) for each in os.listdir(theirs_open)]
    assert path + "-wal" in links  # looked at the right process
    assert path + "-lock" not in links
    ours.send("go")
    child.join()
"""


@pytest.mark.parametrize("script", [OPEN, READ_ONLY, EXIT, IN_LINE])
def test_two_processes_never_use_one_connection(tmp_path: Path, script: str):
    path, other = tmp_path / "state.db", tmp_path / "other.db"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + script, str(path), str(other)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with SessionDB(path) as db:
        assert db.get_session("s")["message_count"] == db.message_count("s")
        assert db.check_search_index() == []
