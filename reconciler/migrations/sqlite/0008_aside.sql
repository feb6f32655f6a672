-- The declaration that a node's newest report says went back for a reason which says nothing about its content, and the one
-- under which its order was given once more (DL-13).

ALTER TABLE nodes ADD COLUMN aside BIGINT;
ALTER TABLE nodes ADD COLUMN repeated BIGINT;
CREATE INDEX nodes_aside ON nodes (node) WHERE aside IS NOT NULL;
