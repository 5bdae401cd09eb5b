package queue_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
)

// gate stops an actor before each statement, and before the end of each transaction, of the
// contexts that have it.
type gate struct {
	arrived chan string // the statement that is next; "": the actor has done what it was to do
	pass    chan verdict
}

// verdict is how an actor goes on.
type verdict int

const (
	goOn   verdict = iota
	refuse         // the statement fails; of COMMIT, the transaction is rolled back
	lose           // of COMMIT, or a statement without a transaction: it succeeds, but its answer is lost
)

var errGate = errors.New("no way through the gate")

type gateKey struct{}

func gateOf(ctx context.Context) *gate {
	g, _ := ctx.Value(gateKey{}).(*gate)
	return g
}

func (g *gate) wait(statement string) verdict {
	if g == nil {
		return goOn
	}
	g.arrived <- statement
	return <-g.pass
}

// gated returns a pool over the connections of db that has gates.
func gated(db *sql.DB) *sql.DB { return sql.OpenDB(gatedConnector{db}) }

type gatedConnector struct{ db *sql.DB }

func (c gatedConnector) Driver() sqldriver.Driver { return c.db.Driver() }

func (c gatedConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	held, err := c.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	conn := &gatedConn{held: held}
	err = held.Raw(func(plain any) error {
		conn.plainConn = plain.(plainConn)
		return nil
	})
	return conn, err
}

// plainConn is what connections of package mysql are, as far as the pool asks.
type plainConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ExecerContext
	sqldriver.NamedValueChecker
	sqldriver.QueryerContext
}

type gatedConn struct {
	plainConn

	held *sql.Conn
}

func (c *gatedConn) Close() error { return c.held.Close() }

func (c *gatedConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	v := gateOf(ctx).wait(query)
	if v == refuse {
		return nil, errGate
	}
	res, err := c.plainConn.ExecContext(ctx, query, args)
	if v == lose {
		return nil, errors.Join(errGate, err)
	}
	return res, err
}

func (c *gatedConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if gateOf(ctx).wait(query) == refuse {
		return nil, errGate
	}
	return c.plainConn.QueryContext(ctx, query, args)
}

func (c *gatedConn) BeginTx(ctx context.Context, opts sqldriver.TxOptions) (sqldriver.Tx, error) {
	tx, err := c.plainConn.BeginTx(ctx, opts)
	return gatedTx{tx, gateOf(ctx)}, err
}

type gatedTx struct {
	sqldriver.Tx

	gate *gate
}

func (tx gatedTx) Commit() error {
	switch tx.gate.wait("COMMIT") {
	case refuse:
		return errors.Join(errGate, tx.Rollback())
	case lose:
		return errors.Join(errGate, tx.Tx.Commit())
	case goOn:
	}
	return tx.Tx.Commit()
}
