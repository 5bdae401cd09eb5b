package once

import (
	"context"
	"database/sql"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
)

// OpenDB makes a pool of connections to MySQL 8.0.13 or MariaDB 10.6, or later, as a [MySQL]
// needs it. It is the OpenDB of package queue: a pool may serve both.
func OpenDB(dsn string) (*sql.DB, error) { return mysql.Open(dsn) }

// Migrate makes the table of [MySQL], or brings it up to this version. It is safe to call at
// each start, also by several processes at the same time: they wait for each other up to 10
// seconds. It needs the right to CREATE.
func Migrate(ctx context.Context, db *sql.DB) error { return schema.Apply(ctx, db, "once_keys") }
