-- From schema 5 to 6. Each environment is stored once. digest() is environments.digest.
CREATE TABLE environments (
    digest TEXT PRIMARY KEY,           -- SHA-256 of env, in hex
    env    TEXT NOT NULL               -- JSON; may hold secrets: read only to start a job, never sent to a client, gone with its last job
);
INSERT OR IGNORE INTO environments
SELECT digest(coalesce(CAST(env AS BLOB), x'')), env FROM jobs WHERE status IN ('queued', 'starting', 'running');
UPDATE jobs SET env = iif(status IN ('queued', 'starting', 'running'), digest(coalesce(CAST(env AS BLOB), x'')), '');
CREATE INDEX jobs_by_env ON jobs (env) WHERE env != '';
