-- name: insert_job
INSERT INTO jobs (id, submitted, status, spec, env, state, seal) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: add_submission
INSERT INTO submissions (token, digest, first, count) VALUES (?, ?, ?, ?);

-- name: end_staging
UPDATE submissions SET digest = ? WHERE token = ?;

-- name: staged
SELECT first, first + count FROM submissions WHERE digest = '';

-- name: staged_envs
SELECT DISTINCT env FROM jobs WHERE id >= ? AND id < ? AND env != '';

-- name: drop_staged
DELETE FROM jobs WHERE id >= ? AND id < ?;

-- name: drop_staged_search
DELETE FROM search WHERE job >= ? AND job < ?;

-- name: drop_staged_submission
DELETE FROM submissions WHERE first = ? AND digest = '';

-- name: restore_submission
INSERT OR IGNORE INTO submissions (token, digest, first, count) VALUES (?, ?, ?, ?);

-- name: prune_submissions
DELETE FROM submissions WHERE id <= (SELECT max(id) FROM submissions) - ?;

-- name: get_submission
SELECT token, digest, first, count FROM submissions WHERE token = ?;

-- name: submission_of
SELECT token, digest, first, count FROM (SELECT * FROM submissions WHERE first <= ?1 ORDER BY first DESC LIMIT 1) WHERE ?1 < first + count;

-- name: get_jobs
SELECT id, spec, submitted, state, place, tries, usage, seal FROM jobs WHERE id >= ? AND id < ? ORDER BY id;

-- name: last_number
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'jobs';

-- name: delete_job
DELETE FROM jobs WHERE id = ?;

-- name: restore_job
INSERT INTO jobs (id, submitted, status, spec, env, state, place, tries, usage, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: level
SELECT (SELECT coalesce(max(id), 0) FROM events), (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'jobs');

-- name: forget_number
DELETE FROM sqlite_sequence WHERE name = 'jobs';

-- name: set_number
INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', ?);

-- name: update_job
UPDATE jobs SET spec = ?, seal = ?, status = ?, state = ?, place = ?, tries = ?, usage = ?, env = iif(?, '', env) WHERE id = ?;

-- name: get_job
SELECT id, spec, submitted, state, place, tries, usage, seal FROM jobs WHERE id = ?;

-- name: existing
SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?));

-- name: statuses
SELECT id, status FROM jobs WHERE id IN (SELECT value FROM json_each(?));

-- name: owners
SELECT job, user FROM search WHERE job IN (SELECT value FROM json_each(?));

-- name: put_env
INSERT INTO environments (digest, env) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET env = excluded.env WHERE env != excluded.env;

-- name: get_env
SELECT digest, CAST(environments.env AS BLOB) FROM jobs JOIN environments ON digest = jobs.env WHERE id = ?;

-- name: envs_named
SELECT id, env FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND env != '';

-- name: env_named
SELECT digest, CAST(env AS BLOB) FROM environments WHERE digest = ?;

-- name: set_env
UPDATE jobs SET env = ? WHERE id = ?;

-- name: envs_of
SELECT DISTINCT env FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND env != '';

-- name: drop_env
DELETE FROM environments WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE env = ?1 AND env != '');

-- name: active_jobs
SELECT id, spec, submitted, state, place, tries, usage, seal FROM jobs WHERE status IN ('queued', 'starting', 'running') ORDER BY id;

-- name: active_numbers
SELECT id FROM jobs WHERE status IN ('queued', 'starting', 'running');

-- name: recent_jobs
SELECT id, spec, submitted, state, place, tries, usage, seal FROM jobs WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?;

-- name: set_search
INSERT OR REPLACE INTO search (job, outcome, submitted, ended, "group", devices, words, user) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: newest_job
SELECT coalesce(max(id), 0) FROM jobs;

-- name: find_jobs
SELECT job FROM search
WHERE job >= :first AND job < :before
  AND CASE WHEN :viewer IS NULL OR user = :viewer
    THEN outcome IN (SELECT value FROM json_each(:outcomes))
      AND (instr(words, :one) OR job = :one) AND (instr(words, :other) OR job = :other)
    ELSE :one = '' AND iif(outcome = 'rejected', 'done', outcome) IN (SELECT value FROM json_each(:outcomes)) END
  AND (ended IS NULL OR ended >= :since) AND submitted < :until
  AND (:group IS NULL OR "group" = :group) AND instr(devices, :device)
ORDER BY job DESC;

-- name: ended_since
SELECT id, spec, submitted, state, place, tries, usage, seal FROM jobs
WHERE id IN (SELECT job FROM search WHERE ended >= ? AND devices != ' ') ORDER BY id;

-- name: get_paused
SELECT paused FROM queue;

-- name: set_paused
UPDATE queue SET paused = ?;

-- name: add_event
INSERT INTO events (job, time, what, text) VALUES (?, ?, ?, ?);

-- name: timeline
SELECT time, what, text FROM events WHERE job = ? ORDER BY id;

-- name: groups
SELECT name, "limit", paused FROM groups ORDER BY name;

-- name: set_group
INSERT OR REPLACE INTO groups (name, "limit", paused) VALUES (?, ?, ?);

-- name: put_alert
INSERT OR REPLACE INTO alerts (id, open, data) VALUES (?, ?, ?);

-- name: prune_alerts
DELETE FROM alerts WHERE open = 0 AND id <= (SELECT MAX(id) FROM alerts) - ?;

-- name: alerts
SELECT data FROM alerts ORDER BY id DESC LIMIT ?;

-- name: open_alerts
SELECT data FROM alerts WHERE open = 1 ORDER BY id;

-- name: last_alert
SELECT COALESCE(MAX(id), 0) FROM alerts;
