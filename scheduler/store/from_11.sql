-- From schema 11 to 12. A submission without a digest is not complete, and its jobs are hidden: versions before this one would run them.
SELECT 1;
