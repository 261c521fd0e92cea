"""The history: every crash in a database, equal ones in groups. `record` writes it, `query` reads it; nothing else imports SQLAlchemy.

    entry       what the history keeps of one crash: plain, masked
    release     which version of the user's program ran
    index       the address of a database, and a connection to it
    tables      its tables
    migrations  how a database of an older crashkit becomes one of this
    write       entries into the tables; idempotent
    spool       entries that have not arrived yet, as files
    record      spools, writes, and delivers what waits
    query       groups and crashes out of the tables
    commits     when a commit was made
"""

from crashkit.history.entry import Entry, of_crash, of_manifest
from crashkit.history.index import HistoryError
from crashkit.history.record import Outcome, record

__all__ = ["Entry", "HistoryError", "Outcome", "of_crash", "of_manifest", "record"]
