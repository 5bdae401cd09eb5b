package contacts

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"time"
)

// prepared asks statements whose text never changes, and spares the server the
// parsing: each connection prepares such a statement when it first asks it. That
// first time costs one more round trip.
//
// It takes at most as many of the statements that the server may hold in all
// (max_prepared_stmt_count, 16382 unless it was changed) as the pool has
// connections, for each text. What cannot be prepared is asked as text, as if
// nothing had been the matter.
type prepared struct {
	db    *sql.DB
	known sync.Map      // from text to *sql.Stmt
	pause time.Duration // for so long nothing is prepared after it was refused
	until atomic.Int64  // in unix nanoseconds: the end of the pause
}

// prepareAgain is the pause of a server that refused. Asking it anew costs a
// round trip; a server that was at its limit may have come away from it.
const prepareAgain = 10 * time.Second

func newPrepared(db *sql.DB) *prepared { return &prepared{db: db, pause: prepareAgain} }

// QueryContext implements [querier].
func (p *prepared) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	if time.Now().UnixNano() >= p.until.Load() {
		rows, err := p.query(ctx, text, args)
		if !isNotPrepared(err) {
			return rows, err
		}
		p.until.Store(time.Now().Add(p.pause).UnixNano())
	}
	return p.db.QueryContext(ctx, text, args...)
}

func (p *prepared) query(ctx context.Context, text string, args []any) (*sql.Rows, error) {
	stmt, err := p.statement(ctx, text) //nolint:sqlclosecheck // it stays, for the next time
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

// statement returns what knows on which connections text is prepared. It belongs
// to db, and is gone when that is closed. An error is that of one attempt, whose
// context may have ended: the next one tries again.
func (p *prepared) statement(ctx context.Context, text string) (*sql.Stmt, error) {
	if known, ok := p.known.Load(text); ok {
		return known.(*sql.Stmt), nil //nolint:errcheck // nothing else is stored
	}
	stmt, err := p.db.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	known, late := p.known.LoadOrStore(text, stmt)
	if late { // others were as quick: one will do
		_ = stmt.Close() //nolint:sqlclosecheck // the other one stays
	}
	return known.(*sql.Stmt), nil //nolint:errcheck // nothing else is stored
}
