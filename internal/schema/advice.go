package schema

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// The errors of the server that mean something of their own here. What is said of
// the others is the business of package contacts.
const (
	erLockWait      = 1205
	erSuperNeeded   = 1227
	erViewNoExplain = 1345 // the plan of a view is hidden from whoever may not see its tables
	erViewInvalid   = 1356 // its tables or columns are gone, or its maker's rights
	erBinlogSuper   = 1419
	erNoDefiner     = 1449 // the user whose rights a view has is gone
)

// advise adds what to do to an error about triggers.
func advise(err error) error {
	switch serverError(err) {
	case erLockWait:
		return fmt.Errorf("%w: a transaction that lasts uses one of the tables; try again when it is over", err)
	case erBinlogSuper, erSuperNeeded:
		return fmt.Errorf("%w: as the server writes a binary log, have its administrator SET GLOBAL log_bin_trust_function_creators = 1, or run this as a user who may do everything", err)
	}
	return err
}

// serverError returns the number of an error that the server sent, else 0.
func serverError(err error) uint16 {
	if sent, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return sent.Number
	}
	return 0
}
