-- A site with a schema of its own kind, as an example for site.map: DATETIME, visibility in numbers,
-- rows that are deleted by a date, and one row for each friendship.
CREATE TABLE site.members (
  id         INT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  nick       VARCHAR(40)  NULL,
  created_at DATETIME     NOT NULL DEFAULT CURRENT_TIMESTAMP,
  deleted_at DATETIME     NULL
);
CREATE TABLE site.friendships (
  id        INT     NOT NULL AUTO_INCREMENT PRIMARY KEY,
  asked_by  INT     NOT NULL,
  asked     INT     NOT NULL,
  state     TINYINT NOT NULL DEFAULT 0 COMMENT '0: asked, 1: accepted, 2: refused',
  is_family BOOLEAN NOT NULL DEFAULT FALSE,
  UNIQUE KEY (asked_by, asked)
);
CREATE TABLE site.bans (
  owner  INT NOT NULL,
  banned INT NOT NULL,
  PRIMARY KEY (owner, banned)
);
CREATE TABLE site.pictures (
  id         INT          NOT NULL AUTO_INCREMENT PRIMARY KEY,
  owner      INT          NOT NULL,
  caption    VARCHAR(255) NULL,
  privacy    TINYINT      NOT NULL COMMENT '0: private, 1: friends, 2: family, 3: both, 4: all',
  created_at DATETIME     NOT NULL COMMENT 'UTC',
  deleted_at DATETIME     NULL,
  KEY (owner)
);
