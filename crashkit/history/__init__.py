"""The history: every crash in a database, equal ones in groups. `record.record` writes it, `query` reads it.

Nothing outside of this room imports SQLAlchemy, and `address` imports nothing that takes time.

    entry       what the history keeps of one crash: plain, masked
    release     which version of the user's program ran
    place       which run of a CI job found it
    address     where a history is: a file, or a database that a team shares
    index       a connection to it
    tables      its tables
    migrations  how a database of an older crashkit becomes one of this
    write       entries into the tables; idempotent
    spool       entries that have not arrived yet, as files
    record      spools, writes, and delivers what waits
    query       groups and crashes out of the tables
    commits     when a commit was made
"""
