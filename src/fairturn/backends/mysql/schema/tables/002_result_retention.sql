-- How long complete() keeps a message with its result, if the queue keeps no done messages.
--
-- MySQL has no ADD COLUMN IF NOT EXISTS, and this must be able to run again after a crash.
SET @step = IF(EXISTS(SELECT 1 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'fairturn_queue' AND column_name = 'result_retention_us'),
  'DO 0',
  'ALTER TABLE fairturn_queue ADD COLUMN /*M! IF NOT EXISTS */ result_retention_us BIGINT NOT NULL DEFAULT 86400000000');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
