package schema

import (
	"fmt"

	"github.com/activityd/activityd/internal/mysql"
)

// advise adds what to do to an error about triggers.
func advise(err error) error {
	switch {
	case mysql.IsLockWait(err):
		return fmt.Errorf("%w: a transaction that lasts uses one of the tables; try again when it is over", err)
	case mysql.NeedsLogTrust(err):
		return fmt.Errorf("%w: as the server writes a binary log, have its administrator SET GLOBAL log_bin_trust_function_creators = 1, or run this as a user who may do everything", err)
	}
	return err
}
