-- Finds stored rows again in a changed input, by key and occurrence.  :first is the index from which on the input
-- differs.  Filled before: temp.old_rows (key, id, orphan), temp.new_rows (key, id), next_chunks.

CREATE TEMP TABLE moves AS
SELECT o.id AS old_id, n.id AS new_id
FROM (SELECT key, id, row_number() OVER (PARTITION BY key ORDER BY id) AS occurrence
      FROM temp.old_rows WHERE NOT orphan) AS o
JOIN (SELECT key, id, row_number() OVER (PARTITION BY key ORDER BY id) AS occurrence
      FROM temp.new_rows) AS n USING (key, occurrence);
CREATE UNIQUE INDEX temp.moves_old ON moves (old_id);
CREATE UNIQUE INDEX temp.moves_new ON moves (new_id);

-- Rows that had left the input come back where nothing finished stands.
CREATE TEMP TABLE returns AS
SELECT o.id AS old_id, n.id AS new_id
FROM (SELECT key, id, row_number() OVER (PARTITION BY key ORDER BY id DESC) AS occurrence
      FROM temp.old_rows WHERE orphan) AS o
JOIN (SELECT key, id, row_number() OVER (PARTITION BY key ORDER BY id) AS occurrence
      FROM temp.new_rows AS candidate
      WHERE NOT EXISTS (SELECT 1 FROM temp.moves AS m JOIN main.rows AS r ON r.id = m.old_id
                        WHERE m.new_id = candidate.id)) AS n USING (key, occurrence);
DELETE FROM temp.moves WHERE new_id IN (SELECT new_id FROM temp.returns);
INSERT INTO temp.moves SELECT old_id, new_id FROM temp.returns;

-- Finished rows that match nothing leave for the negative indices.
INSERT INTO temp.moves
SELECT o.id, min(0, coalesce((SELECT min(id) FROM main.rows), 0), coalesce((SELECT min(id) >> 16 FROM main.attempts), 0))
             - row_number() OVER (ORDER BY o.id)
FROM temp.old_rows AS o
WHERE NOT o.orphan AND o.id NOT IN (SELECT old_id FROM temp.moves)
  AND (EXISTS (SELECT 1 FROM main.rows AS r WHERE r.id = o.id)
       OR EXISTS (SELECT 1 FROM main.attempts AS a WHERE a.id > o.id << 16 AND a.id < (o.id + 1) << 16));

CREATE TEMP TABLE moved_rows AS
SELECT r.*, m.new_id, o.key AS old_key
FROM temp.moves AS m
JOIN main.rows AS r ON r.id = m.old_id
JOIN temp.old_rows AS o ON o.id = m.old_id;
UPDATE temp.moved_rows SET id = new_id, key = CASE WHEN new_id < 0 THEN old_key END;

-- Followers go with their leaders; one whose leader left without an outcome is pending again.
DELETE FROM temp.moved_rows
WHERE duplicate_of >= :first AND duplicate_of NOT IN (SELECT old_id FROM temp.moves);
UPDATE temp.moved_rows
SET duplicate_of = (SELECT m.new_id FROM temp.moves AS m WHERE m.old_id = duplicate_of)
WHERE duplicate_of IN (SELECT old_id FROM temp.moves);

CREATE TEMP TABLE moved_attempts AS
SELECT a.*, (m.new_id << 16) | (a.id & 65535) AS new_id
FROM temp.moves AS m
JOIN main.attempts AS a ON a.id > m.old_id << 16 AND a.id < (m.old_id + 1) << 16;
UPDATE temp.moved_attempts SET id = new_id;

DELETE FROM main.rows WHERE id IN (SELECT id FROM temp.old_rows WHERE NOT orphan)
                         OR id IN (SELECT old_id FROM temp.moves);
DELETE FROM main.attempts WHERE id >= :first << 16
                             OR (id < 0 AND id >> 16 IN (SELECT old_id FROM temp.moves));
DELETE FROM main.rows WHERE duplicate_of >= :first AND duplicate_of NOT IN (SELECT old_id FROM temp.moves);
UPDATE main.rows
SET duplicate_of = (SELECT m.new_id FROM temp.moves AS m WHERE m.old_id = duplicate_of)
WHERE duplicate_of IN (SELECT old_id FROM temp.moves);
DELETE FROM main.leaders WHERE id >= :first AND id NOT IN (SELECT old_id FROM temp.moves);
UPDATE main.leaders SET id = (SELECT m.new_id FROM temp.moves AS m WHERE m.old_id = main.leaders.id)
WHERE id IN (SELECT old_id FROM temp.moves);
INSERT INTO main.rows
SELECT id, status, requeued, version, lane, attempts, answer, error, latency_s, input_tokens, output_tokens,
       cost_usd, reasoning, duplicate_of, key
FROM temp.moved_rows ORDER BY id;
INSERT INTO main.attempts
SELECT id, lane, sent_at, latency_s, kind, status_code, packed, body, error, request_id, input_tokens, output_tokens,
       cost_usd
FROM temp.moved_attempts ORDER BY id;

DELETE FROM main.chunks WHERE id >= :first ;
INSERT INTO main.chunks
SELECT id, row_count, places, key_names, keys, digest, layout, payload FROM main.next_chunks ORDER BY id;
DELETE FROM main.next_chunks;
