-- When it was last seen to use its device, to the end of a sample: written with the
-- minutes.
ALTER TABLE run ADD COLUMN active_at INTEGER; -- milliseconds since 1970
