-- From schema 7 to 8. What was submitted has a checksum. checksum() is checksums.checksum.
ALTER TABLE jobs ADD COLUMN seal TEXT NOT NULL DEFAULT '';
UPDATE jobs SET seal = checksum(id, submitted, coalesce(CAST(spec AS BLOB), x''));
