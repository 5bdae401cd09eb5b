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
	return c.Raw(func(plain any) error {
		plain.(*conn).seen = time.Time{}
		return nil
	})
}
