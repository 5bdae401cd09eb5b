-- activityd: the tables it reads (users, contacts, blocks, photos) and those that
-- it owns (all others). MySQL 8.0.13+ and MariaDB 10.6+; safe to
-- apply again. `activityd schema --check` holds a database to it. The tables of the queue are in
-- queue/schema.sql; the comment of the table tasks records the version of all.
--
-- A site with a schema of its own creates views with the names and columns of
-- the first four over its tables, and only the other tables as they stand here.
-- Then its own indexes must serve the queries: docs/setup.md lists them.

CREATE TABLE IF NOT EXISTS users (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  username    VARCHAR(255)    NOT NULL DEFAULT '',
  last_upload BIGINT UNSIGNED NULL COMMENT 'unix seconds, at least the date of each photo that is not private; NULL or 0: there was none',
  PRIMARY KEY (id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- A row belongs to user_id: "user_id calls contact_id a contact, and grants
-- contact_id the sight of its friends' or family's photos".
CREATE TABLE IF NOT EXISTS contacts (
  user_id    BIGINT UNSIGNED NOT NULL,
  contact_id BIGINT UNSIGNED NOT NULL,
  is_friend  BOOLEAN         NOT NULL DEFAULT FALSE,
  is_family  BOOLEAN         NOT NULL DEFAULT FALSE,
  created_at BIGINT UNSIGNED NOT NULL DEFAULT (UNIX_TIMESTAMP()) COMMENT 'unix seconds',
  PRIMARY KEY (user_id, contact_id),
  KEY followers (contact_id, user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- Neither of the two sees anything of the other's.
CREATE TABLE IF NOT EXISTS blocks (
  user_id    BIGINT UNSIGNED NOT NULL,
  blocked_id BIGINT UNSIGNED NOT NULL,
  created_at BIGINT UNSIGNED NOT NULL DEFAULT (UNIX_TIMESTAMP()) COMMENT 'unix seconds',
  PRIMARY KEY (user_id, blocked_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The key newest makes "the n newest of one owner in one visibility class" a
-- scan of n entries, however many photos the owner has in other classes.
CREATE TABLE IF NOT EXISTS photos (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  owner_id    BIGINT UNSIGNED NOT NULL,
  title       VARCHAR(255)    NOT NULL DEFAULT '',
  visibility  ENUM('private','friends','family','friends_family','followers','public') NOT NULL DEFAULT 'private',
  date_upload BIGINT UNSIGNED NOT NULL COMMENT 'unix seconds',
  PRIMARY KEY (id),
  KEY newest (owner_id, visibility, date_upload, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The members whose uploads are not written to the sets of their followers, as they have too many:
-- an upload is written here, and reads look here. activityd fills it; `activityd broadcast` changes it.
CREATE TABLE IF NOT EXISTS broadcast_members (
  member_id   BIGINT UNSIGNED  NOT NULL,
  last_upload BIGINT UNSIGNED  NOT NULL COMMENT 'unix seconds; reads go by it, as uploads are in no set',
  leaving_at  BIGINT UNSIGNED  NULL COMMENT 'unix milliseconds; uploads go to this row and to the sets',
  named       TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'by an operator, who alone takes it away',
  PRIMARY KEY (member_id),
  KEY newest (last_upload, member_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The states of work that one process at a time may do: a row for each name, and
-- rows that are none, as they begin with a space: the fence of ' floor' is at least that of
-- each row that was deleted, and that of ' database' is the id of this database, which is stored beside
-- the sets in Redis.
-- They must stay. Times are unix milliseconds of the database's clock.
CREATE TABLE IF NOT EXISTS once_keys (
  name         VARCHAR(200)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  phase        ENUM('none','free','held','done','exhausted') NOT NULL DEFAULT 'none' COMMENT 'none: of the rows that are no names',
  owner        VARCHAR(100)    NOT NULL DEFAULT '' COMMENT 'has the lease, or ended the last attempt',
  attempt      INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT 'attempts that began and were not handed back',
  max_attempts INT UNSIGNED    NOT NULL DEFAULT 0 COMMENT '0: no limit',
  lease        BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'milliseconds',
  keep         BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'milliseconds',
  fence        BIGINT UNSIGNED NOT NULL COMMENT 'the fencing token of the last acquisition',
  changes      BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of this row',
  began        BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'when the last attempt began',
  lease_ends   BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'held: when',
  forget_at    BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'the state is as none from then on',
  reason       VARCHAR(500)    NOT NULL DEFAULT '' COMMENT 'why the last attempt failed',
  ended        VARCHAR(545)    NOT NULL DEFAULT '' COMMENT 'how the last attempts ended that were not done, and their owners',
  PRIMARY KEY (name),
  KEY phases (phase, forget_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- The phones and browsers of members that are notified. What is in address is secret.
CREATE TABLE IF NOT EXISTS push_devices (
  id            BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  member_id     BIGINT UNSIGNED NOT NULL,
  platform      VARCHAR(16)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'as in apns',
  address_hash  BINARY(32)      NOT NULL COMMENT 'SHA-256 of the platform and the token or endpoint',
  address       JSON            NOT NULL DEFAULT (JSON_OBJECT()) COMMENT 'empty once it is gone',
  language      VARCHAR(35)     CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'of its texts, as in BCP 47',
  registered_at BIGINT UNSIGNED NOT NULL COMMENT 'when its address was last confirmed',
  gone_at       BIGINT UNSIGNED NULL COMMENT 'it is not notified any more; the row is kept for some days, for the reason',
  gone_reason   VARCHAR(64)     NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  UNIQUE KEY address (address_hash),
  KEY members (member_id, gone_at, id),
  KEY gone (gone_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- What members want to be notified of; a member without a row, of everything.
CREATE TABLE IF NOT EXISTS push_settings (
  member_id  BIGINT UNSIGNED   NOT NULL,
  types      JSON              NOT NULL DEFAULT (JSON_OBJECT()) COMMENT 'by type, false: not of those',
  quiet_from SMALLINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'minutes after midnight',
  quiet_to   SMALLINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'equal to quiet_from: no quiet hours',
  time_zone  VARCHAR(64)       CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'UTC',
  missing_at BIGINT UNSIGNED   NULL COMMENT 'when it was found that there is no such member; a day later what push keeps of it is deleted',
  PRIMARY KEY (member_id),
  KEY missing (missing_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

CREATE TABLE IF NOT EXISTS push_mutes (
  member_id BIGINT UNSIGNED NOT NULL,
  object    VARCHAR(100)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'as in photo:901; user:5 is the actor 5, too',
  until_at  BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (member_id, object),
  KEY ends (until_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- Events whose tasks began, until some time after they expired.
CREATE TABLE IF NOT EXISTS push_events (
  number     BIGINT UNSIGNED NOT NULL COMMENT 'the id of its task; other tasks with its id are repetitions',
  id         VARCHAR(100)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of its producer, or given to it',
  actor_id   BIGINT UNSIGNED NOT NULL,
  event      JSON            NOT NULL DEFAULT (JSON_OBJECT()) COMMENT 'as in the payload of a task',
  created_at BIGINT UNSIGNED NOT NULL,
  expires_at BIGINT UNSIGNED NOT NULL,
  forget_at  BIGINT UNSIGNED NOT NULL COMMENT 'it is deleted, with its receipts',
  PRIMARY KEY (number),
  UNIQUE KEY ids (id),
  KEY forgotten (forget_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;

-- What became of an event for a device; device 0 stands for the member as a whole.
CREATE TABLE IF NOT EXISTS push_receipts (
  event_number BIGINT UNSIGNED   NOT NULL,
  member_id    BIGINT UNSIGNED   NOT NULL,
  device_id    BIGINT UNSIGNED   NOT NULL,
  state        ENUM('pending','skipped','failed','accepted') NOT NULL COMMENT 'in the order in which one replaces another; pending: it waits with others of its burst',
  reason       VARCHAR(64)       NOT NULL DEFAULT '',
  provider_id  VARCHAR(128)      NOT NULL DEFAULT '' COMMENT 'the id under which the push service took it',
  at           BIGINT UNSIGNED   NOT NULL,
  burst        BINARY(16)        NULL COMMENT 'a hash of the type and the collapse key of the event, if it has one',
  PRIMARY KEY (event_number, member_id, device_id),
  KEY bursts (burst, device_id, state, at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
