-- Version 3 of the table tasks.
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
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COMMENT='activityd schema 3, compatible since 1';
