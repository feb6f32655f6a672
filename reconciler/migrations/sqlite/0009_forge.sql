-- Pull requests of the forge, what was said there, and what the forge says of commits (page 08).

CREATE TABLE pull_requests (
    number  BIGINT PRIMARY KEY,
    is_open BIGINT NOT NULL,
    doc     TEXT   NOT NULL
);

-- The newest text of each kind and key that was queued, by its digest; and by which id the forge knows it.
CREATE TABLE said (
    kind   TEXT   NOT NULL,
    key    TEXT   NOT NULL,
    digest TEXT   NOT NULL,
    there  BIGINT,
    PRIMARY KEY (kind, key)
);
