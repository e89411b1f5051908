-- Pages by time, and who is in the record.
ALTER TABLE event ADD COLUMN content TEXT; -- of a start and of settings: JSON
CREATE INDEX event_at ON event (at);
CREATE INDEX action_at ON action (at);
CREATE INDEX event_uid ON event (uid) WHERE uid IS NOT NULL;
CREATE INDEX action_uid ON action (uid) WHERE uid IS NOT NULL;
CREATE INDEX event_of_start ON event (id) WHERE kind = 'started';
-- Nothing of the record is taken away, and of what happened nothing changes.
CREATE TRIGGER event_stays BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'what happened does not change');
END;
CREATE TRIGGER event_is_kept BEFORE DELETE ON event
BEGIN
    SELECT RAISE(ABORT, 'the record is only added to');
END;
CREATE TRIGGER action_is_kept BEFORE DELETE ON action
BEGIN
    SELECT RAISE(ABORT, 'the record is only added to');
END;
