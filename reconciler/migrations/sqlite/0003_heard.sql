-- At which change what is heard of a node was written: what was read of all nodes is true but for those of later changes.

ALTER TABLE nodes ADD COLUMN change BIGINT NOT NULL DEFAULT 0;
CREATE INDEX nodes_by_change ON nodes (change);
INSERT INTO counters (name, value) VALUES ('nodes', 1);
