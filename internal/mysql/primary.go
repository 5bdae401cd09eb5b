package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// seenFor is how long a connection is taken to lead to the primary after its server said so.
	seenFor = time.Second
	// sharedFor is how long no connection is opened after a session was found to be shared. An idle proxy gives
	// each connection the session that it had, and shares sessions under load.
	sharedFor = 10 * time.Second
	// brokenHandshake is the text of the driver's unexported error for a connection that breaks
	// before the answer to the handshake is sent.
	brokenHandshake = "bad connection"
)

var (
	// errNoAnswer is the error of a server that accepts a connection, and sends nothing.
	errNoAnswer = errors.New("the server does not answer")
	// errOvertaken is the error of a connection whose pool has gone over to another server: nothing was done on it.
	errOvertaken = fmt.Errorf("new connections lead to another server: %w", driver.ErrBadConn)
)

// Connections counts the connections of all pools of this process. A registry is the caller's.
var Connections = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "activityd_mysql_connections",
	Help: "Open connections to MySQL by database and server_id; two servers of one database: one is a primary by mistake, or a failover is under way.",
}, []string{"database", "server_id"})

// servers knows to which server the newest connection of a pool leads. After a failover it is no longer the server of
// the older connections, which are given up.
type servers struct {
	database string // label of the metric

	mu     sync.Mutex
	newest string    // server_id
	since  time.Time // when the connection to it was begun
	shared error     // a session was found not to be the connection's own
	until  time.Time // no connection is opened because of shared
}

// note records a connection, and reports whether it leads to the newest server. A connection that was begun earlier
// than another, and took longer, may not.
func (s *servers) note(id string, begun time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begun.After(s.since) {
		s.newest, s.since = id, begun
	}
	return s.newest == id
}

// refusal returns why no connection may be opened; nil if one may.
func (s *servers) refusal(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return s.shared
	}
	return nil
}

// connector makes connections to the primary whose session is set up.
type connector struct {
	driver.Connector
	servers *servers
	timeout time.Duration // until the session is set up
}

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	begun := time.Now()
	if err := c.servers.refusal(begun); err != nil {
		return nil, err
	}
	// The pool opens connections without a deadline, too, and a server that hangs accepts them.
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	plain, is, err := c.begin(bounded)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%w within %v", errNoAnswer, c.timeout)
	case err != nil:
		return nil, err
	case !c.servers.note(is.server, begun):
		_ = plain.Close() // nothing was done on it
		return nil, errOvertaken
	}
	Connections.WithLabelValues(c.servers.database, is.server).Inc()
	return &conn{plain, c.servers, is, begun}, nil
}

// begin opens a connection, and sets its session up. It looks twice, as a proxy may send each statement to another
// session.
func (c connector) begin(ctx context.Context) (plain driverConn, is session, err error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil && err.Error() == brokenHandshake {
		err = fmt.Errorf("during the handshake: %w", driver.ErrBadConn)
	}
	if err != nil {
		return nil, is, err
	}
	plain = opened.(driverConn)
	defer func() {
		if err != nil {
			_ = plain.Close() // err matters more
		}
	}()
	for _, text := range setUp {
		if _, err := plain.ExecContext(ctx, text, nil); err != nil {
			return plain, is, fmt.Errorf("setting up the session: %w", err)
		}
	}
	first, err := ask(ctx, plain)
	if err == nil {
		is, err = ask(ctx, plain)
	}
	return plain, is, cmp.Or(err, is.checkAfter(first))
}

// driverConn is the form of the driver's connections.
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

// conn is a connection to the primary, with a session of its own. The pool gives it up when either is over.
type conn struct {
	driverConn
	servers *servers
	session session
	seen    time.Time // when the server last said that it is the primary
}

// isNewest reports whether the pool has not gone over to another server.
func (c *conn) isNewest() bool {
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	return c.servers.newest == c.session.server
}

// ResetSession implements [driver.SessionResetter]: the pool calls it before it uses the connection again, and
// closes a connection that returns [driver.ErrBadConn].
func (c *conn) ResetSession(ctx context.Context) error {
	if err := c.driverConn.ResetSession(ctx); err != nil {
		return err
	}
	if !c.isNewest() {
		return errOvertaken
	}
	if time.Since(c.seen) < seenFor {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout) // for a server that hangs, and a caller without a deadline
	defer cancel()
	asked := time.Now()
	is, err := ask(ctx, c.driverConn)
	if err == nil && is.server == c.session.server {
		err = is.checkAfter(c.session)
	}
	c.servers.mu.Lock()
	defer c.servers.mu.Unlock()
	if errors.Is(err, errShared) && is.server == c.session.server { // elsewhere a new session is no wonder
		c.servers.shared, c.servers.until = err, asked.Add(sharedFor)
	}
	// The pool may have gone over while the server did not answer.
	if err != nil || is.server != c.session.server || is.server != c.servers.newest {
		return driver.ErrBadConn
	}
	c.seen = asked
	return nil
}

// BeginTx implements [driver.ConnBeginTx]. The session's isolation is READ COMMITTED; a transaction that asks for
// no level gets REPEATABLE READ.
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

// Close implements [driver.Conn].
func (c *conn) Close() error {
	Connections.WithLabelValues(c.servers.database, c.session.server).Dec()
	return c.driverConn.Close()
}

// tx is a transaction whose end does not outlast its context. The driver waits as long as the server does: with
// semi-synchronous replication until a replica has answered.
type tx struct {
	ctx  context.Context // driver.Tx has none
	conn *conn
}

// Commit implements [driver.Tx]. After an error of the context or the connection the transaction may be committed
// or not. It is not if the pool has gone over to another server since it began: the server before gets nothing more.
func (t tx) Commit() error {
	if !t.conn.isNewest() {
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

// end closes the connection if it fails, as the transaction may be open still.
func (t tx) end(ctx context.Context, statement string) error {
	_, err := t.conn.ExecContext(ctx, statement, nil)
	if err != nil {
		_ = t.conn.driverConn.Close() // the pool closes t.conn
	}
	return err
}
