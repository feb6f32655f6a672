-- The epoch that a node's newest report says went back for a reason which says nothing about its policy, and the one under which
-- the policy was given it once more (DL-13).

ALTER TABLE nodes ADD COLUMN epoch_aside BIGINT;
ALTER TABLE nodes ADD COLUMN epoch_repeated BIGINT;
CREATE INDEX nodes_epoch_aside ON nodes (node) WHERE epoch_aside IS NOT NULL;
