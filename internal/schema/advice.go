package schema

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// The errors of the server that want advice of their own here. What is said of
// the others is the business of package contacts.
const (
	erLockWait     = 1205
	erBinlogSuper  = 1419
	erSuperNeeded  = 1227
	erUnknownField = 1054
)

// advise adds what to do to an error about triggers.
func advise(err error) error {
	sent, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return err
	}
	switch sent.Number {
	case erLockWait:
		return fmt.Errorf("%w: a transaction that lasts uses one of the tables; try again when it is over", err)
	case erBinlogSuper, erSuperNeeded:
		return fmt.Errorf("%w: as the server writes a binary log, have its administrator SET GLOBAL log_bin_trust_function_creators = 1, or run this as a user who may do everything", err)
	case erUnknownField:
		return fmt.Errorf("%w: `activityd schema` shows the columns that the tables need", err)
	}
	return err
}
