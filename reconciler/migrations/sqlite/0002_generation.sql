-- How often an assignment was changed, whoever changed it: what was read of them is true while this number stands.

INSERT INTO counters (name, value) VALUES ('assignments', 0);

CREATE TRIGGER assignments_inserted AFTER INSERT ON assignments
BEGIN
    UPDATE counters SET value = value + 1 WHERE name = 'assignments';
END;

CREATE TRIGGER assignments_updated AFTER UPDATE ON assignments
BEGIN
    UPDATE counters SET value = value + 1 WHERE name = 'assignments';
END;

CREATE TRIGGER assignments_deleted AFTER DELETE ON assignments
BEGIN
    UPDATE counters SET value = value + 1 WHERE name = 'assignments';
END;
