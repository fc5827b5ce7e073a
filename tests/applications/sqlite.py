"""Transactions of SQLite that insert one row each, with `PRAGMA synchronous = FULL`:

    sqlite.py make FILE JOURNAL_MODE
    sqlite.py insert FILE SECONDS

`insert` prints how many it committed, and how long that took."""

import sqlite3
import sys
import time


def connect(file):
    # Without transactions that Python begins by itself: each INSERT is one.
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("PRAGMA synchronous = FULL")
    return database


def make(file, journal_mode):
    database = connect(file)
    mode, = database.execute(f"PRAGMA journal_mode = {journal_mode}").fetchone()
    if mode != journal_mode:
        sys.exit(f"SQLite takes journal_mode {mode} instead of {journal_mode}")
    database.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")


def insert(file, seconds):
    database = connect(file)
    text = 100 * "x"
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        database.execute("INSERT INTO account (text) VALUES (?)", (text,))
        count += 1
    elapsed = time.monotonic() - begun
    kept, = database.execute("SELECT count(*) FROM account").fetchone()
    if kept != count:
        sys.exit(f"{count} rows were inserted, and {kept} are there")
    print(f"{count} transactions in {elapsed:.3f} s")


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3])
else:
    insert(sys.argv[2], float(sys.argv[3]))
