-- Whose processes are asked for, and which, is found without reading them all.
CREATE INDEX process_uid ON process (uid);
CREATE INDEX process_user ON process (user);
CREATE INDEX process_owner_uid ON process (owner_uid);
CREATE INDEX process_owner ON process (owner);
CREATE INDEX process_name ON process (name);
CREATE INDEX process_job ON process (job) WHERE job IS NOT NULL;
CREATE INDEX process_container_name ON process (container_name)
    WHERE container_name IS NOT NULL;
-- Without the runtime before it.
CREATE INDEX process_container ON process (substr(container, instr(container, '/') + 1))
    WHERE container IS NOT NULL;
