-- How long complete() keeps a message with its result, if the queue keeps no done messages.
ALTER TABLE fairturn.queue ADD COLUMN result_retention_us bigint NOT NULL DEFAULT 86400000000;
