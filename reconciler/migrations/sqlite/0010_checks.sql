-- What a forge says of the checks of a commit (DL-2).

CREATE TABLE checks (
    commit_id TEXT PRIMARY KEY,
    doc       TEXT NOT NULL
);
