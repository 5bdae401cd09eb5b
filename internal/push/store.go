package push

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// MySQL keeps devices, settings, mutes, events and receipts in tables of activityd's own.
// Its methods are safe for concurrent use. When they fail, the error is that of
// [mysql.Translate].
type MySQL struct {
	db       *sql.DB
	prepared *mysql.Prepared
	scan     memberScan
}

// NewMySQL returns a store over db, which should come from [mysql.Open]. The caller closes db; the store needs no closing.
func NewMySQL(db *sql.DB) *MySQL { return &MySQL{db: db, prepared: mysql.NewPrepared(db)} }

// requireMember returns an error that wraps [contacts.ErrNoMember] unless the member is
// there.
func requireMember(ctx context.Context, q mysql.Querier, id member.ID) error {
	found, err := mysql.Select(ctx, q, mysql.Column[uint64], "SELECT 1 FROM users WHERE id = ?", id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %d", contacts.ErrNoMember, id)
	}
	return err
}

// selectOf selects the rows of a member. The error wraps [contacts.ErrNoMember] if the member is not
// there.
func selectOf[T any](ctx context.Context, q mysql.Querier, id member.ID, scan func(*sql.Rows) (T, error), text string) ([]T, error) {
	if err := requireMember(ctx, q, id); err != nil {
		return nil, err
	}
	return mysql.Select(ctx, q, scan, text, id)
}

// hashOf is a SHA-256 of two strings. The first has no zero byte.
func hashOf(first, second string) [sha256.Size]byte {
	return sha256.Sum256([]byte(first + "\x00" + second))
}

// instant is scanned from a column of unix milliseconds; NULL and 0 are the zero
// time.
type instant time.Time

// Scan implements [sql.Scanner].
func (i *instant) Scan(value any) error {
	var ms sql.NullInt64
	if err := ms.Scan(value); err != nil {
		return err
	}
	*i = instant{}
	if ms.Int64 != 0 {
		*i = instant(time.UnixMilli(ms.Int64).UTC())
	}
	return nil
}
