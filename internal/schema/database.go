package schema

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"

	"github.com/activityd/activityd/internal/mysql"
)

// databaseRow is the row of once_keys whose fence is the id of the database.
const databaseRow = " database"

// DatabaseID returns the id of the database, which is random, and made by the first process that asks
// for it; the name of the database is part of it. It is stored beside the sets in Redis, to tell whose they are. A copy
// of a database under the same name has the id of the original until the row is deleted.
func DatabaseID(ctx context.Context, db *sql.DB) (string, error) {
	read := func() (id string, err error) {
		err = db.QueryRowContext(ctx, "SELECT SHA2(CONCAT(fence, ' ', LOWER(DATABASE())), 224) FROM once_keys WHERE name = ?", databaseRow).Scan(&id)
		return id, err
	}
	id, err := read()
	if errors.Is(err, sql.ErrNoRows) {
		var random [8]byte
		_, _ = rand.Read(random[:]) // it never fails
		// Another process may be faster.
		if _, err := db.ExecContext(ctx, "INSERT IGNORE INTO once_keys (name, fence) VALUES (?, ?)", databaseRow, binary.BigEndian.Uint64(random[:])>>1); err != nil {
			return "", mysql.Translate(ctx, "make the id of the database", err)
		}
		id, err = read()
	}
	if err != nil {
		return "", mysql.Translate(ctx, "read the id of the database", err)
	}
	return id[:16], nil
}
