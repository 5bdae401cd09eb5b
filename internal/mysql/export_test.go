package mysql

import (
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/go-sql-driver/mysql"
)

// DriverConn is a connection of the driver.
type DriverConn = driverConn

// OpenThrough is [Open] with a proxy before the driver.
func OpenThrough(dsn string, proxy func(driver.Connector) driver.Connector) (*sql.DB, error) {
	cfg, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	plain, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{proxy(plain), &servers{database: cfg.DBName}, connectTimeout}), nil
}

// AskAgain makes the next use of a connection ask its server whether it is the primary.
func AskAgain(c *sql.Conn) error {
	return change(c, func(c *conn) { c.seen = time.Time{} })
}

// Expire makes a connection as old as it may be, and returns when that would have been.
func Expire(c *sql.Conn) (at time.Time, err error) {
	err = change(c, func(c *conn) { at, c.expires = c.expires, time.Now() })
	return at, err
}

func change(c *sql.Conn, f func(*conn)) error {
	return c.Raw(func(plain any) error {
		f(plain.(*conn))
		return nil
	})
}
