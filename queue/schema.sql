-- The durable queue. A producer sets type, subject and args in the transaction of the change that the
-- task is about; if it wants to, also queue, priority, run_at, expires_at, max_attempts, backoff and dedupe_key. It needs
-- the right to insert these columns, and no other. Times are unix milliseconds of the database's clock.
-- Columns that a claim writes have a fixed size, so that rows stay where they are.
CREATE TABLE IF NOT EXISTS tasks (
  id           BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT,
  queue        VARCHAR(32)       NOT NULL DEFAULT 'default',
  type         VARCHAR(32)       NOT NULL,
  subject      BIGINT UNSIGNED   NOT NULL DEFAULT 0 COMMENT 'what the task is about; of ordered types one task of a subject runs at a time; 0: none',
  args         JSON              NOT NULL DEFAULT (JSON_OBJECT()),
  state        ENUM('waiting','behind','scheduled','running','dead') NOT NULL DEFAULT 'waiting' COMMENT 'behind: waits until another task of its subject is done',
  priority     SMALLINT          NOT NULL DEFAULT 0 COMMENT 'lower runs first',
  attempts     SMALLINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'that were begun',
  max_attempts SMALLINT UNSIGNED NOT NULL DEFAULT 0 COMMENT '0: as its type says, or 25',
  backoff      INT UNSIGNED      NOT NULL DEFAULT 0 COMMENT 'milliseconds after the first failure; it doubles, up to 5 minutes; 0: as its type says, or 500',
  lost         TINYINT UNSIGNED  NOT NULL DEFAULT 0 COMMENT 'its last leases that ran out',
  run_at       BIGINT UNSIGNED   NOT NULL DEFAULT 0 COMMENT 'waiting, scheduled: not started before; running: the lease ends; dead: since then',
  started_at   BIGINT UNSIGNED   NOT NULL DEFAULT 0 COMMENT 'when it was claimed last; 0: never',
  expires_at   BIGINT UNSIGNED   NULL COMMENT 'not started after it; NULL: never expires',
  lease        CHAR(56)          CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'running: the worker, and what is random',
  dedupe_key   VARCHAR(128)      CHARACTER SET ascii COLLATE ascii_bin NULL COMMENT 'unique among tasks that have not been started',
  last_error   VARCHAR(2000)     NULL,
  created_at   BIGINT UNSIGNED   NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  PRIMARY KEY (id),
  UNIQUE KEY dedupe (dedupe_key),
  KEY claim (state, queue, priority, id),
  KEY timers (state, run_at),
  KEY subjects (subject, state, queue, priority, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='activityd schema 8';

-- The subjects of a queue of which a task runs, is next, or has others behind it.
CREATE TABLE IF NOT EXISTS held_keys (
  queue   VARCHAR(32)     NOT NULL,
  subject BIGINT UNSIGNED NOT NULL,
  task_id BIGINT UNSIGNED NOT NULL COMMENT 'the one task that may run',
  PRIMARY KEY (queue, subject)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The queues of which no task may start.
CREATE TABLE IF NOT EXISTS paused_queues (
  queue     VARCHAR(32)     NOT NULL,
  paused_at BIGINT UNSIGNED NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  PRIMARY KEY (queue)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- What was enqueued under an idempotency key, so that a client that repeats itself gets the first answer.
CREATE TABLE IF NOT EXISTS idempotency_keys (
  key_hash    BINARY(32)      NOT NULL COMMENT 'SHA-256 of the key',
  batch_hash  BINARY(32)      NOT NULL COMMENT 'SHA-256 of what was to be enqueued',
  task_ids    JSON            NOT NULL DEFAULT (JSON_ARRAY()),
  created_at  BIGINT UNSIGNED NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  PRIMARY KEY (key_hash),
  KEY created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
