-- From schema 9 to 10. Our modules are imported from the package gpudeck. renamed() is renamed.renamed; a job whose seal does not fit is left as it is.
UPDATE jobs SET spec = renamed(CAST(spec AS BLOB)), seal = checksum(id, submitted, renamed(CAST(spec AS BLOB)))
WHERE renamed(CAST(spec AS BLOB)) != CAST(spec AS BLOB) AND seal = checksum(id, submitted, CAST(spec AS BLOB));
