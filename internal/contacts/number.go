package contacts

import (
	"fmt"
	"strconv"
)

// number is what an unsigned integer is scanned into, by a conversion of the
// pointer to it. Without it database/sql writes each number as text and reads it
// again.
type number uint64

// Scan implements [sql.Scanner].
func (n *number) Scan(value any) (err error) {
	switch v := value.(type) {
	case int64:
		if v < 0 {
			return fmt.Errorf("%d: want a number that is not negative", v)
		}
		*n = number(v)
	case uint64:
		*n = number(v)
	case []byte: // how the driver returns what no int64 can hold
		return n.parse(string(v))
	case string:
		return n.parse(v)
	default:
		return fmt.Errorf("%v (%T): want a number", value, value)
	}
	return nil
}

func (n *number) parse(text string) error {
	parsed, err := strconv.ParseUint(text, 10, 64)
	*n = number(parsed)
	return err
}
