-- name: add_journal
INSERT INTO journal (device, data) VALUES (?, ?);

-- name: journal
SELECT device, data FROM journal ORDER BY id;

-- name: clear_journal
DELETE FROM journal WHERE device = ?;

-- name: add_block
INSERT INTO blocks (device, tier, since, until, rows, rolled, times, counts) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: drop_block
DELETE FROM blocks WHERE id = ?;

-- name: drop_columns
DELETE FROM columns WHERE block = ?;

-- name: add_column
INSERT INTO columns (block, field, data) VALUES (?, ?, ?);

-- name: open_block
SELECT id, tier, rows, times, counts FROM blocks WHERE device = ? AND tier = ? AND rolled = 0 ORDER BY id DESC LIMIT 1;

-- name: blocks
SELECT id, tier, rows, times, counts FROM blocks WHERE device = ? AND tier = ? AND until >= ? AND since <= ? ORDER BY since;

-- name: open_blocks
SELECT id, tier, rows, times, counts FROM blocks WHERE device = ? AND tier < ? AND rolled = 0 AND until >= ? AND since <= ?;

-- name: all_columns
SELECT block, field, data FROM columns WHERE block IN (SELECT value FROM json_each(?));

-- name: columns
SELECT block, field, data FROM columns
WHERE block IN (SELECT value FROM json_each(?1)) AND field IN (SELECT value FROM json_each(?2));

-- name: oldest
SELECT MIN(since) FROM blocks WHERE device = ? AND tier = ?;

-- name: fields
SELECT DISTINCT field FROM columns WHERE block IN (SELECT id FROM blocks WHERE device = ? AND until >= ? AND since <= ?) ORDER BY field;

-- name: newest
SELECT device, MAX(until) FROM blocks GROUP BY device;

-- name: last
SELECT MAX(until) FROM blocks WHERE device = ?;

-- name: between
SELECT device, MIN(since), MAX(until) FROM blocks WHERE device >= ? AND device < ? AND until >= ? AND since <= ? GROUP BY device;

-- name: unfinished
SELECT DISTINCT device FROM blocks WHERE rolled = 0;

-- name: aged
SELECT id FROM blocks WHERE tier = ? AND rolled = 1 AND (until < ? OR until > ?) ORDER BY until LIMIT ?;

-- name: annotate
INSERT OR REPLACE INTO annotations (time, until, kind, text, device, job, name) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: annotations
SELECT time, until, kind, text, device, job, name FROM annotations WHERE time <= ? AND (until IS NULL OR until >= ?) ORDER BY time DESC LIMIT ?;

-- name: end_annotations
UPDATE annotations SET until = MAX(time, ?) WHERE until IS NULL;

-- name: prune_annotations
DELETE FROM annotations WHERE time < (SELECT time FROM annotations ORDER BY time DESC LIMIT 1 OFFSET ?);
