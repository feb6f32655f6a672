-- Rollouts, their timelines, and the journal of events (RO-5, RO-7). Rollouts from before this are not listed.

-- One row a rollout, under its first epoch. `body` is null until it is put away; `form` says how it is packed.
CREATE TABLE rollouts (
    first_epoch BIGINT NOT NULL PRIMARY KEY,
    rollout_id  TEXT   NOT NULL,
    commit_id   TEXT   NOT NULL,
    archived_at BIGINT,
    summary     TEXT,
    form        TEXT,
    body        BLOB
);
CREATE INDEX rollouts_by_id ON rollouts (rollout_id, first_epoch);
CREATE INDEX rollouts_live ON rollouts (first_epoch) WHERE archived_at IS NULL;

-- The epochs of each.
CREATE TABLE rollout_epochs (
    epoch       BIGINT NOT NULL PRIMARY KEY,
    first_epoch BIGINT NOT NULL REFERENCES rollouts (first_epoch) ON DELETE CASCADE,
    doc         TEXT   NOT NULL
);
CREATE INDEX rollout_epochs_by_first ON rollout_epochs (first_epoch, epoch);

-- What each node said last of an epoch: a report that says the same is no change.
CREATE TABLE epoch_marks (
    node  TEXT   NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    state TEXT   NOT NULL
);

-- Changes that no archive has yet.
CREATE TABLE epoch_events (
    id    INTEGER PRIMARY KEY,
    epoch BIGINT NOT NULL,
    node  TEXT   NOT NULL,
    state TEXT   NOT NULL,
    via   TEXT   NOT NULL,
    at    BIGINT NOT NULL
);
CREATE INDEX epoch_events_by_epoch ON epoch_events (epoch, id);

CREATE TABLE events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    doc    TEXT NOT NULL
);
