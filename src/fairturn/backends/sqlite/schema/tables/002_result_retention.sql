-- How long complete() keeps a message with its result, if the queue keeps no done messages.
ALTER TABLE fairturn_queue ADD COLUMN result_retention_us INTEGER NOT NULL DEFAULT 86400000000;
