-- A run file of format 1 becomes one of format 2.

CREATE TABLE lanes_of_2 (
    id       INTEGER PRIMARY KEY,
    endpoint TEXT NOT NULL,
    model    TEXT NOT NULL,
    version  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (endpoint, model, version)
);
INSERT INTO lanes_of_2 (id, endpoint, model) SELECT id, endpoint, model FROM lanes;
DROP TABLE lanes;
ALTER TABLE lanes_of_2 RENAME TO lanes;

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
