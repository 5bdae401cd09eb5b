package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// seenFor is how long a connection is taken to lead to the primary after its server said
// so. A server that became read-only more than that ago answers nothing any more.
const seenFor = time.Second

// errReadOnly is the error of a server that takes no writes.
var errReadOnly = errors.New("the server is read-only, as a replica is: the DSN must lead to the primary")

// errOvertaken is the error of a connection whose pool has gone over to another server. What
// was to be done on it was not done.
var errOvertaken = fmt.Errorf("new connections lead to another server: %w", driver.ErrBadConn)

// errNoAnswer is the error of a server that accepts a connection, and sends nothing.
var errNoAnswer = errors.New("the server does not answer")

// servers knows to which server the newest connection of a pool leads. After a failover
// that is another one than before, and the older connections are given up.
type servers struct {
	database string // label of the metric

	shared atomic.Pointer[sharedSession] // the last session that was found not to be ours; nil: none

	mu     sync.Mutex
	newest string    // server_id
	since  time.Time // when the connection to it was begun
}

// note records a connection, and reports whether it leads to the newest server: one that was
// begun earlier than another, and took longer, may not.
func (s *servers) note(id string, begun time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun.After(s.since) {
		s.newest, s.since = id, begun
	}
	return s.newest == id
}

func (s *servers) isNewest(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest == id
}

func (s *servers) connections(id string) prometheus.Gauge {
	return Connections.WithLabelValues(s.database, id)
}

// driverConn is what the driver's connections are.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// conn is a connection to the primary, with a session of its own. The pool gives it up when it
// is found not to be so any more.
type conn struct {
	driverConn
	servers *servers
	session
	seen    time.Time // when the server last said that it is the primary
	expires time.Time // from then on it is not used again
}

// IsValid implements [driver.Validator]: the pool calls it when a connection is returned.
func (c *conn) IsValid() bool {
	return c.driverConn.IsValid() && time.Now().Before(c.expires)
}

// ResetSession implements [driver.SessionResetter]: the pool calls it before it uses the
// connection again, and closes it when it returns [driver.ErrBadConn].
func (c *conn) ResetSession(ctx context.Context) error {
	if err := c.driverConn.ResetSession(ctx); err != nil {
		return err
	}
	if !c.servers.isNewest(c.server) {
		return errOvertaken
	}
	if time.Since(c.seen) < seenFor {
		return nil
	}
	// A server that hangs is given up even if the caller has no deadline.
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	asked := time.Now()
	is, err := ask(ctx, c.driverConn)
	if err != nil || is.server != c.server {
		return driver.ErrBadConn
	}
	if err := is.checkAfter(c.session); err != nil {
		c.servers.shared.Store(&sharedSession{asked, err})
		return driver.ErrBadConn
	}
	if !c.servers.isNewest(c.server) { // the pool may have gone over while the server did not answer
		return errOvertaken
	}
	c.seen = asked
	return nil
}

// BeginTx implements [driver.ConnBeginTx]. The session's isolation is READ COMMITTED; a transaction that asks
// for none gets REPEATABLE READ.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	switch sql.IsolationLevel(opts.Isolation) {
	case sql.LevelReadCommitted:
		opts.Isolation = driver.IsolationLevel(sql.LevelDefault)
	case sql.LevelDefault:
		opts.Isolation = driver.IsolationLevel(sql.LevelRepeatableRead)
	default:
	}
	if _, err := c.driverConn.BeginTx(ctx, opts); err != nil {
		return nil, err
	}
	return tx{ctx, c}, nil
}

// tx is a transaction whose end does not outlast its context. That of the driver waits as
// long as the server does: with semi-synchronous replication until a replica has answered.
type tx struct {
	ctx  context.Context // driver.Tx has none
	conn *conn
}

// Commit implements [driver.Tx]. After an error of the context it is not known whether the
// transaction was committed, as with one of the connection. It was not if the pool has gone
// over to another server since it began: to the server before nothing is sent any more.
func (t tx) Commit() error {
	if !t.conn.servers.isNewest(t.conn.server) {
		_ = t.conn.driverConn.Close() // which rolls back; the pool closes t.conn
		return errOvertaken
	}
	return t.end(t.ctx, "COMMIT")
}

// Rollback implements [driver.Tx]. The context may have ended.
func (t tx) Rollback() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), connectTimeout)
	defer cancel()
	return t.end(ctx, "ROLLBACK")
}

// end closes the connection if it fails, as it is not known whether the transaction is open.
func (t tx) end(ctx context.Context, statement string) error {
	_, err := t.conn.ExecContext(ctx, statement, nil)
	if err != nil {
		_ = t.conn.driverConn.Close() // the pool closes t.conn
	}
	return err
}

// Close implements [driver.Conn].
func (c *conn) Close() error {
	c.servers.connections(c.server).Dec()
	return c.driverConn.Close()
}
