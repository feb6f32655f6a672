-- The reconciler's store. Times are unix microseconds, ids and JSON are text. Migrations only add (LK-6).

CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

-- The highest numbers used (SG-8); `digest` is that of the newest journal block.
CREATE TABLE counters (
    name   TEXT   NOT NULL PRIMARY KEY,
    value  BIGINT NOT NULL,
    digest TEXT
);

CREATE TABLE deliveries (
    commit_id TEXT   NOT NULL PRIMARY KEY,
    name      TEXT   NOT NULL,
    state     TEXT   NOT NULL,
    order_no  BIGINT NOT NULL UNIQUE,
    doc       TEXT   NOT NULL
);
CREATE INDEX deliveries_by_state ON deliveries (state, order_no);
CREATE INDEX deliveries_by_name ON deliveries (name);

CREATE TABLE transitions (
    commit_id TEXT   NOT NULL REFERENCES deliveries (commit_id),
    seq       BIGINT NOT NULL,
    doc       TEXT   NOT NULL,
    PRIMARY KEY (commit_id, seq)
);

-- Signed orders, exact text. A number is never used twice with other bytes; node is '' but for declarations.
CREATE TABLE orders (
    kind      TEXT   NOT NULL,
    number    BIGINT NOT NULL,
    node      TEXT   NOT NULL,
    digest    TEXT   NOT NULL,
    envelope  TEXT   NOT NULL,
    commit_id TEXT,
    issued_at BIGINT NOT NULL,
    PRIMARY KEY (kind, number, node)
);
CREATE INDEX orders_by_node ON orders (kind, node, number);
CREATE INDEX orders_by_digest ON orders (digest);

-- The records under the newest heads, exact text, so that proofs can be made.
CREATE TABLE leaves (
    revision           BIGINT NOT NULL,
    place              BIGINT NOT NULL,
    node               TEXT   NOT NULL,
    transport_key      TEXT   NOT NULL,
    next_transport_key TEXT,
    leaf               TEXT   NOT NULL,
    PRIMARY KEY (revision, place)
);
CREATE INDEX leaves_by_node ON leaves (revision, node);
CREATE INDEX leaves_by_key ON leaves (revision, transport_key);
CREATE INDEX leaves_by_next_key ON leaves (revision, next_transport_key);

-- The epochs that stand (SG-2).
CREATE TABLE standing_epochs (
    epoch BIGINT NOT NULL PRIMARY KEY,
    doc   TEXT   NOT NULL
);

CREATE TABLE contents (
    digest TEXT NOT NULL PRIMARY KEY,
    body   BLOB NOT NULL
);

CREATE TABLE assignments (
    node   TEXT NOT NULL,
    scope  TEXT NOT NULL,
    doc    TEXT NOT NULL,
    PRIMARY KEY (node, scope)
);

CREATE TABLE accepted (
    scope TEXT NOT NULL PRIMARY KEY,
    doc   TEXT NOT NULL
);

CREATE TABLE known_bad (
    scope  TEXT NOT NULL,
    digest TEXT NOT NULL,
    doc    TEXT NOT NULL,
    PRIMARY KEY (scope, digest)
);

-- What people asked for (DL-4).
CREATE TABLE requests (
    id       TEXT   NOT NULL PRIMARY KEY,
    asked_at BIGINT NOT NULL,
    doc      TEXT   NOT NULL,
    answer   TEXT
);
CREATE INDEX requests_open ON requests (asked_at) WHERE answer IS NULL;

-- The journal (DL-9): `text` is the whole signed block.
CREATE TABLE blocks (
    number     BIGINT NOT NULL PRIMARY KEY,
    commit_id  TEXT   NOT NULL,
    digest     TEXT   NOT NULL,
    text       TEXT   NOT NULL,
    written_at BIGINT
);
CREATE INDEX blocks_by_commit ON blocks (commit_id, number);
CREATE INDEX blocks_unwritten ON blocks (number) WHERE written_at IS NULL;

CREATE TABLE reports (
    node        TEXT   NOT NULL,
    counter     BIGINT NOT NULL,
    envelope    TEXT   NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (node, counter)
);

-- The newest that is heard of each node.
CREATE TABLE nodes (
    node         TEXT   NOT NULL PRIMARY KEY,
    counter      BIGINT NOT NULL,
    instance     TEXT   NOT NULL,
    boot_id      TEXT   NOT NULL,
    report       TEXT   NOT NULL,
    heard_at     BIGINT NOT NULL,
    look         TEXT,
    look_counter BIGINT,
    look_at      BIGINT
);

-- Webhooks that were accepted (FG-2).
CREATE TABLE inbox (
    id          TEXT   NOT NULL PRIMARY KEY,
    delivery_id TEXT   NOT NULL,
    body_digest TEXT   NOT NULL,
    event       TEXT   NOT NULL,
    received_at BIGINT NOT NULL,
    handled_at  BIGINT,
    UNIQUE (delivery_id, body_digest)
);
CREATE INDEX inbox_open ON inbox (received_at) WHERE handled_at IS NULL;

-- Up to where each branch is made into deliveries (DL-1).
CREATE TABLE cursors (
    repo      TEXT NOT NULL,
    branch    TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    PRIMARY KEY (repo, branch)
);

-- Outward acts (FG-4): one open row for each kind and key.
CREATE TABLE outbox (
    id        TEXT   NOT NULL PRIMARY KEY,
    kind      TEXT   NOT NULL,
    key       TEXT   NOT NULL,
    body      TEXT   NOT NULL,
    attempts  BIGINT NOT NULL,
    queued_at BIGINT NOT NULL,
    due_at    BIGINT NOT NULL,
    error     TEXT,
    done_at   BIGINT
);
CREATE UNIQUE INDEX outbox_open ON outbox (kind, key) WHERE done_at IS NULL;
CREATE INDEX outbox_due ON outbox (due_at) WHERE done_at IS NULL;

-- Invitations (LK-3).
CREATE TABLE invites (
    id      TEXT NOT NULL PRIMARY KEY,
    doc     TEXT NOT NULL,
    used_by TEXT
);
