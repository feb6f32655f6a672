-- Reviews of a forge: who approved which change of a commit (DL-15).

CREATE TABLE reviews (
    commit_id TEXT   NOT NULL,
    by_whom   TEXT   NOT NULL,
    doc       TEXT   NOT NULL,
    PRIMARY KEY (commit_id, by_whom)
);
