package mysql

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"
)

// Prepared runs queries whose text never changes, and saves the server the parsing: each connection prepares a
// statement when it first runs it, which costs a round trip more. A statement that cannot be prepared is sent as text.
//
// For each text the server holds at most one statement per connection of the pool, of max_prepared_stmt_count in all
// (16382 by default).
type Prepared struct {
	// Pause is how long nothing is prepared after the server refused to. It must not be changed after the first query.
	Pause time.Duration

	db    *sql.DB
	known sync.Map     // from text to *sql.Stmt
	until atomic.Int64 // in unix nanoseconds: the end of the pause
}

// NewPrepared returns a Prepared over db with a pause of 10 s: another attempt costs a round trip, and a server that
// was at its limit may have room again.
func NewPrepared(db *sql.DB) *Prepared { return &Prepared{db: db, Pause: 10 * time.Second} }

// QueryContext does what [sql.DB.QueryContext] does.
func (p *Prepared) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if time.Now().UnixNano() >= p.until.Load() {
		stmt, err := p.statement(ctx, text) //nolint:sqlclosecheck // it stays, for the next time
		if err == nil {
			var rows *sql.Rows
			if rows, err = stmt.QueryContext(ctx, args...); err == nil {
				return rows, nil
			}
		}
		if !is(err, notPrepared) {
			return nil, err
		}
		p.until.Store(time.Now().Add(p.Pause).UnixNano())
	}
	return p.db.QueryContext(ctx, text, args...)
}

// statement returns the statement of text, which lives as long as db. An error is that of one attempt, whose context
// may have ended: the next query tries again.
func (p *Prepared) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if known, ok := p.known.Load(text); ok {
		return known.(*sql.Stmt), nil
	}
	stmt, err := p.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	known, late := p.known.LoadOrStore(text, stmt)
	if late { // another goroutine prepared it first
		_ = stmt.Close() //nolint:sqlclosecheck // the statement of the other goroutine stays
	}
	return known.(*sql.Stmt), nil
}
