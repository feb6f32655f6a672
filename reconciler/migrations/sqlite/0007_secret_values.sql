-- The values of secrets that contents name, by their content digests (FR-9): age files to the reconciler's own identity,
-- so that a roll-back has what it goes back to. No value stands anywhere in this database.

CREATE TABLE secret_values (
    digest TEXT NOT NULL PRIMARY KEY,
    file   BLOB NOT NULL
);
