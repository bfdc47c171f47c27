-- What a Galera cluster needs, where several nodes write (docs/decisions/011-galera.md).

-- `joins` changes when a message joins a group, and when the group's marks are counted. So two nodes that do
-- this at the same time write the same row, and the cluster refuses one of them.
SET @step = IF(EXISTS(SELECT 1 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'fairturn_group' AND column_name = 'joins'),
  'DO 0',
  'ALTER TABLE fairturn_group ADD COLUMN /*M! IF NOT EXISTS */ joins BIGINT NOT NULL DEFAULT 0');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

-- The unique index of keys, so that messages without a key share nothing. A cluster compares the entries of
-- unique indexes, too, unless all their columns are NULL. With (lane, NULL) every send and ack of a queue met
-- those of all other nodes.
SET @step = IF(EXISTS(SELECT 1 FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'fairturn_message' AND column_name = 'key_lane'),
  'DO 0',
  'ALTER TABLE fairturn_message
     ADD COLUMN /*M! IF NOT EXISTS */ key_lane INT GENERATED ALWAYS AS (IF(`key` IS NULL, NULL, lane)) STORED,
     DROP KEY `key`, ADD UNIQUE KEY `key` (key_lane, `key`)');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

-- Events without a place yet. A cluster writes its events here; a reader moves those that are committed to
-- fairturn_event, where their ids are their order.
CREATE TABLE IF NOT EXISTS fairturn_event_new (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at BIGINT NOT NULL,
  written TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  kind VARBINARY(8) NOT NULL,
  queue VARBINARY(255) NOT NULL,
  message_id BIGINT NULL,
  `key` VARBINARY(255) NULL,
  channel VARBINARY(255) NULL,
  delay_us BIGINT NULL,
  data MEDIUMBLOB NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO fairturn_lock (name) VALUES ('place');
