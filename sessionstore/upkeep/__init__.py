"""Care for the file of a store: copies of it, putting one back, and a look for what is wrong.

Nothing here opens, copies or hashes a database file by hand: SQLite does, so that no lock of
this process is lost (https://www.sqlite.org/howtocorrupt.html, 2.2).
"""

from sessionstore.upkeep.backup import back_up
from sessionstore.upkeep.copying import copy
from sessionstore.upkeep.derived import repair, schema_objects
from sessionstore.upkeep.examine import Finding, examine, index_finding, sound
from sessionstore.upkeep.recover import RecoveryReport, recover
from sessionstore.upkeep.restore import RestoreReport, check_backup, restore

__all__ = [
    "Finding",
    "RecoveryReport",
    "RestoreReport",
    "back_up",
    "check_backup",
    "copy",
    "examine",
    "index_finding",
    "recover",
    "repair",
    "restore",
    "schema_objects",
    "sound",
]
