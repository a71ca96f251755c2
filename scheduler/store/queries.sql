-- name: insert_job
INSERT INTO jobs (submitted, status, spec, env, state) VALUES (?, ?, ?, ?, ?);

-- name: update_job
UPDATE jobs SET spec = ?, status = ?, state = ? WHERE id = ?;

-- name: get_job
SELECT id, spec, submitted, state FROM jobs WHERE id = ?;

-- name: get_env
SELECT env FROM jobs WHERE id = ?;

-- name: forget_env
UPDATE jobs SET env = '{}' WHERE id = ?;

-- name: active_jobs
SELECT id, spec, submitted, state FROM jobs WHERE status IN ('queued', 'starting', 'running') ORDER BY id;

-- name: recent_jobs
SELECT id, spec, submitted, state FROM jobs ORDER BY id DESC LIMIT ?;

-- name: add_sample
INSERT OR REPLACE INTO samples (device, time, data) VALUES (?, ?, ?);

-- name: samples_since
SELECT data FROM samples WHERE time >= ? ORDER BY time;

-- name: prune_samples
DELETE FROM samples WHERE time < ?;

-- name: get_paused
SELECT paused FROM queue;

-- name: set_paused
UPDATE queue SET paused = ?;
