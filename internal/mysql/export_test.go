package mysql

import (
	"database/sql"
	"time"
)

// AskAgain makes the next use of a connection ask its server whether it is the primary.
func AskAgain(c *sql.Conn) error {
	return c.Raw(func(plain any) error {
		plain.(*conn).seen = time.Time{}
		return nil
	})
}

// Expire makes a connection as old as it may be.
func Expire(c *sql.Conn) error {
	return c.Raw(func(plain any) error {
		plain.(*conn).expires = time.Now()
		return nil
	})
}

// Expires returns when a connection is as old as it may be.
func Expires(c *sql.Conn) (at time.Time, err error) {
	err = c.Raw(func(plain any) error {
		at = plain.(*conn).expires
		return nil
	})
	return at, err
}
