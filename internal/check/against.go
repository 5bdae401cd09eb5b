package check

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// Against compares a site's own statement with the definition of the read. All fields are required.
type Against struct {
	DB        *sql.DB // of a single connection: its session gets the time limit. The right SELECT is enough
	Statement Statement
	Limit     int           // photos
	Timeout   time.Duration // of each statement, on the server
}

// Difference is an answer of the site that is not the due answer.
type Difference struct {
	Class  Class     `json:"class"`
	Viewer member.ID `json:"viewer"`
	Photo  uint64    `json:"photo,string"` // the first that shows the difference
	Owner  member.ID `json:"owner"`        // its owner; 0: no photo has the id
	Ours   []string  `json:"ours"`         // the ids of the photos, in their order
	Theirs []string  `json:"theirs"`
}

func texts(ids []uint64) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = strconv.FormatUint(id, 10)
	}
	return list
}

// Sample returns n members at most with ids from first to last, by chance.
func (a *Against) Sample(ctx context.Context, first, last member.ID, n int) ([]member.ID, error) {
	ids, err := mysql.Select(ctx, a.DB, mysql.Column[member.ID], "SELECT id FROM users WHERE id BETWEEN ? AND ? ORDER BY RAND() LIMIT ?", first, last, n)
	return ids, mysql.Translate(ctx, "choose a sample of the members", err)
}

// Compare compares both answers for a viewer; nil means that they are the same. It fails with [contacts.ErrNoMember], and
// as [mysql.Translate] says.
func (a *Against) Compare(ctx context.Context, viewer member.ID) (*Difference, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*a.Timeout) // a server that hangs ends no statement
	defer cancel()
	tx, err := a.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, mysql.Translate(ctx, "begin a snapshot", err)
	}
	defer func() { _ = tx.Rollback() }() // it only read
	theirs, err := a.theirs(ctx, tx, viewer)
	if err != nil {
		return nil, err
	}
	snapshot, v := contacts.NewSnapshot(tx), contacts.Viewer{ID: viewer}
	due, err := snapshot.Walk(ctx, v, a.Limit)
	if err != nil {
		return nil, err
	}
	ours := make([]uint64, len(due.Photos))
	for i, p := range due.Photos {
		ours[i] = p.ID
	}
	if slices.Equal(ours, theirs) {
		return nil, nil //nolint:nilnil // as the comment says
	}
	list, err := snapshot.Sightings(ctx, v, slices.Compact(slices.Sorted(slices.Values(slices.Concat(ours, theirs)))))
	seen := make(sightings, len(list))
	for _, s := range list {
		seen[s.Photo] = s
	}
	class, photo := seen.classify(ours, theirs)
	return &Difference{class, viewer, photo, seen[photo].Owner, texts(ours), texts(theirs)}, err
}

// theirs runs the site's statement, and returns the photos that it has first.
func (a *Against) theirs(ctx context.Context, tx *sql.Tx, viewer member.ID) ([]uint64, error) {
	// Both servers know max_sort_length, here with its default.
	_, err := tx.ExecContext(ctx, fmt.Sprintf("SET max_sort_length = 1024 /*!80013 , max_execution_time = %d */ /*M!100600 , max_statement_time = %.3f */",
		a.Timeout.Milliseconds(), a.Timeout.Seconds()))
	if err != nil {
		return nil, mysql.Translate(ctx, "set the time limit", err)
	}
	args := make([]any, len(a.Statement.names))
	for i, name := range a.Statement.names {
		if args[i] = any(a.Limit); name == viewerName {
			args[i] = uint64(viewer)
		}
	}
	start := time.Now()
	ids, err := mysql.Select(ctx, tx, firstColumn, a.Statement.text, args...)
	if mysql.IsTooSlow(err) || time.Since(start) >= a.Timeout { // MySQL ends a SLEEP without an error
		return nil, fmt.Errorf("your statement takes longer than %v", a.Timeout)
	}
	return ids[:min(len(ids), a.Limit)], mysql.Translate(ctx, "your statement, whose first column is to be the id of a photo", err)
}

func firstColumn(rows *sql.Rows) (id uint64, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	into := make([]any, len(columns))
	for i := range into {
		into[i] = new(sql.RawBytes)
	}
	into[0] = &id
	return id, rows.Scan(into...)
}
