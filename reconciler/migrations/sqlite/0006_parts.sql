-- What of a delivery grows with the fleet, in parts: a pass that heard of one machine writes the few kilobytes of its part.
-- A document of before has all of it inside, and no part; the next write moves it out.

CREATE TABLE delivery_parts (
    commit_id TEXT NOT NULL REFERENCES deliveries (commit_id),
    part      TEXT NOT NULL,
    doc       TEXT NOT NULL,
    PRIMARY KEY (commit_id, part)
);

-- How often a delivery was changed, whoever did it: at the same number it is the same. Below zero: it has no parts yet.
ALTER TABLE deliveries ADD COLUMN changes BIGINT NOT NULL DEFAULT 0;
UPDATE deliveries SET changes = -1;
CREATE TRIGGER delivery_changed AFTER UPDATE OF doc ON deliveries BEGIN
    UPDATE deliveries SET changes = changes + 1 WHERE commit_id = NEW.commit_id;
END;
CREATE TRIGGER delivery_part_added AFTER INSERT ON delivery_parts BEGIN
    UPDATE deliveries SET changes = changes + 1 WHERE commit_id = NEW.commit_id;
END;
CREATE TRIGGER delivery_part_changed AFTER UPDATE ON delivery_parts BEGIN
    UPDATE deliveries SET changes = changes + 1 WHERE commit_id = NEW.commit_id;
END;
CREATE TRIGGER delivery_part_removed AFTER DELETE ON delivery_parts BEGIN
    UPDATE deliveries SET changes = changes + 1 WHERE commit_id = OLD.commit_id;
END;
