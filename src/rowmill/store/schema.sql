-- The run file, format 2.  One file, whole by itself: export, retry and status need nothing else.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- What was sent besides the rows, one entry for each model that answers under it.
CREATE TABLE versions (
    id          INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    model       TEXT NOT NULL,
    definition  TEXT NOT NULL,
    accepted    INTEGER NOT NULL DEFAULT 0,
    UNIQUE (fingerprint, model)
);

-- The input, about 1,000 rows a chunk.  id is the index of the first row; places holds the indices (8 bytes each,
-- little endian) where they are not contiguous; keys holds 16 bytes a row; payload is zstd.
CREATE TABLE chunks (
    id        INTEGER PRIMARY KEY,
    row_count INTEGER NOT NULL,
    places    BLOB,
    key_names TEXT NOT NULL,
    keys      BLOB NOT NULL,
    digest    BLOB NOT NULL,
    layout    TEXT NOT NULL,
    payload   BLOB NOT NULL
);

-- A changed input on its way to the place of chunks: the same columns, and the keys to find stored rows by.
CREATE TABLE next_chunks (
    id         INTEGER PRIMARY KEY,
    row_count  INTEGER NOT NULL,
    places     BLOB,
    key_names  TEXT NOT NULL,
    keys       BLOB NOT NULL,
    digest     BLOB NOT NULL,
    layout     TEXT NOT NULL,
    payload    BLOB NOT NULL,
    match_keys BLOB
);

-- Who answered.  Of an outcome: the endpoint and the model that its reply names.  Of an attempt: the endpoint and the
-- version of the job that it was asked under (0: not known, as in a file of format 1).
CREATE TABLE lanes (
    id       INTEGER PRIMARY KEY,
    endpoint TEXT NOT NULL,
    model    TEXT NOT NULL,
    version  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (endpoint, model, version)
);

-- How rows ended.  A row of the input that is not here is pending, and so is one whose requeued is not 0
-- (1: to be sent again, 2: its stored reply to be read again).  Rows that left the input have negative indices
-- and keep their key, so that they are found again if they come back.  answer is a JSON object as it is, or zstd
-- with the dictionary in meta where it does not begin with a brace.
CREATE TABLE rows (
    id            INTEGER PRIMARY KEY,
    status        TEXT NOT NULL,
    requeued      INTEGER NOT NULL DEFAULT 0,
    version       INTEGER NOT NULL,
    lane          INTEGER,
    attempts      INTEGER NOT NULL,
    answer        BLOB,
    error         TEXT,
    latency_s     REAL,
    input_tokens  INTEGER,
    output_tokens INTEGER,
    cost_usd      REAL,
    reasoning     TEXT,
    duplicate_of  INTEGER,
    key           BLOB
);

-- Of rows with one key the one that is sent, where duplicates are not; the others in rows follow it: their status is
-- 'duplicate', duplicate_of is its id, and how they ended is how it did.
CREATE TABLE leaders (
    key BLOB PRIMARY KEY,
    id  INTEGER NOT NULL
) WITHOUT ROWID;

-- Every request, append only.  id is 65,536 times the row's index plus 1, 2, ...; kind is NULL for a valid answer.
-- packed says how body is stored: 0 as it is, 1 zstd, 2 zstd with the dictionary in meta.
CREATE TABLE attempts (
    id            INTEGER PRIMARY KEY,
    lane          INTEGER NOT NULL,
    sent_at       REAL NOT NULL,
    latency_s     REAL,
    kind          TEXT,
    status_code   INTEGER,
    packed        INTEGER NOT NULL DEFAULT 0,
    body          BLOB,
    error         TEXT,
    request_id    TEXT,
    input_tokens  INTEGER,
    output_tokens INTEGER,
    cost_usd      REAL
);

-- Each start of a run on this file; ended is NULL while it runs and after a kill.  cost_usd is what attempts of
-- known cost have cost, unknown_costs counts the others, unconfirmed_usd is the worst case of those.
CREATE TABLE sessions (
    id             INTEGER PRIMARY KEY,
    started        REAL NOT NULL,
    updated        REAL NOT NULL,
    ended          REAL,
    reason         TEXT,
    peak_in_flight INTEGER NOT NULL DEFAULT 0,
    requests       INTEGER NOT NULL DEFAULT 0,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    cost_usd       REAL NOT NULL DEFAULT 0,
    unknown_costs  INTEGER NOT NULL DEFAULT 0,
    unconfirmed_usd REAL NOT NULL DEFAULT 0,
    latencies      TEXT NOT NULL DEFAULT '{}',
    snapshot       TEXT NOT NULL DEFAULT '{}'
);
