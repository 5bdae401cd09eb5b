-- The tables of activityd's own as they were in version 1 of the schema: the ones of
-- a database that records no version. This file never changes.

-- The durable queue. A producer sets type, subject and args in the transaction of
-- the change that the task is about; if it wants to, also queue and priority,
-- expires_at, or, for a task that shall run later, state = 'scheduled' and due_at.
-- It needs the right to insert these columns, and no other (README, Rights); args of
-- more than 4096 bytes are not read. Times are unix milliseconds of the database's clock.
CREATE TABLE IF NOT EXISTS tasks (
  id           BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT,
  queue        VARCHAR(32)       NOT NULL DEFAULT 'default',
  type         VARCHAR(32)       NOT NULL,
  subject      BIGINT UNSIGNED   NOT NULL COMMENT 'the member whose set, or whose followers'' sets, the task touches',
  args         JSON              NOT NULL DEFAULT (JSON_OBJECT()),
  priority     SMALLINT          NOT NULL DEFAULT 0 COMMENT 'lower runs first',
  state        ENUM('waiting','scheduled','running','dead','done') NOT NULL DEFAULT 'waiting',
  attempts     SMALLINT UNSIGNED NOT NULL DEFAULT 0,
  max_attempts SMALLINT UNSIGNED NOT NULL DEFAULT 25,
  expires_at   BIGINT UNSIGNED   NULL COMMENT 'not started after it; NULL: never expires',
  due_at       BIGINT UNSIGNED   NULL DEFAULT (expires_at) COMMENT 'waiting: it expires; scheduled: it may run; running: its lease ends; done: it is forgotten',
  dedupe_key   VARCHAR(128)      CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'unique among tasks that have not been started; the start makes it ~id/random',
  lease_owner  VARCHAR(64)       CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'running: who works on it; else: lost, if the last lease ran out',
  last_error   VARCHAR(2000)     NULL,
  created_at   BIGINT UNSIGNED   NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  updated_at   BIGINT UNSIGNED   NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  PRIMARY KEY (id),
  UNIQUE KEY dedupe (dedupe_key),
  KEY claim (queue, state, priority, id, type),
  KEY timers (state, due_at),
  KEY chains (type, subject)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The queues of which no task may start.
CREATE TABLE IF NOT EXISTS paused_queues (
  queue     VARCHAR(32)     NOT NULL,
  paused_at BIGINT UNSIGNED NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  PRIMARY KEY (queue)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- What was enqueued under an idempotency key, so that a client that repeats
-- itself gets the answer of the first time.
CREATE TABLE IF NOT EXISTS task_keys (
  key_hash    BINARY(32)      NOT NULL COMMENT 'SHA-256 of the key',
  batch_hash  BINARY(32)      NOT NULL COMMENT 'SHA-256 of what was to be enqueued',
  task_ids    JSON            NOT NULL DEFAULT (JSON_ARRAY()),
  created_at  BIGINT UNSIGNED NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  PRIMARY KEY (key_hash),
  KEY created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
