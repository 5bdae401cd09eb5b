package mysql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/mysql"
)

func serverError(number uint16) error {
	return &sqldriver.MySQLError{Number: number, Message: "as the server says it"}
}

// timeout is like the error of package net, which matches a context's.
type timeout struct{}

func (timeout) Error() string     { return "i/o timeout" }
func (timeout) Timeout() bool     { return true }
func (timeout) Temporary() bool   { return true }
func (timeout) Is(err error) bool { return err == context.DeadlineExceeded }

func TestTranslate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	if err := mysql.Translate(ctx, "work", nil); err != nil {
		t.Errorf("no error became %v", err)
	}
	limit := mysql.Translate(ctx, "work", &net.OpError{Op: "dial", Err: timeout{}})
	if !errors.Is(limit, mysql.ErrUnavailable) || errors.Is(limit, context.DeadlineExceeded) {
		t.Errorf("the connection's timeout: %v, want ErrUnavailable, and not the caller's deadline", limit)
	}
	for number, advice := range map[uint16]string{
		1146: "activityd schema --apply", 1049: "create the database", 1045: "user and password", 1142: "grant", 1143: "grant",
		1054: "activityd schema --check", 1176: "activityd schema --check", 1356: "activityd schema --check", 1364: "activityd schema --check",
	} {
		cause := serverError(number)
		err := mysql.Translate(ctx, "doing the work", cause)
		if !errors.Is(err, cause) || errors.Is(err, mysql.ErrUnavailable) ||
			!strings.Contains(err.Error(), advice) || !strings.Contains(err.Error(), "doing the work") {
			t.Errorf("error %d: %v, want the cause, the work and %q", number, err, advice)
		}
	}
	for _, lost := range []error{
		driver.ErrBadConn, sqldriver.ErrInvalidConn, io.EOF, io.ErrUnexpectedEOF, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED},
	} {
		if err := mysql.Translate(ctx, "work", fmt.Errorf("wrapped: %w", lost)); !errors.Is(err, mysql.ErrUnavailable) || !errors.Is(err, lost) {
			t.Errorf("%v: %v, want ErrUnavailable and the cause", lost, err)
		}
	}
	plain := errors.New("something else")
	if err := mysql.Translate(ctx, "work", plain); !errors.Is(err, plain) || errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("another error: %v", err)
	}
}

// The meanings of all numbers, also wrapped.
func TestMeanings(t *testing.T) {
	t.Parallel()
	away := func(err error) bool { return errors.Is(err, mysql.ErrUnavailable) }
	busy := func(err error) bool { return errors.Is(err, mysql.ErrBusy) }
	for name, test := range map[string]struct {
		is      func(error) bool
		numbers []uint16
	}{
		"retryable": {mysql.IsRetryable, []uint16{1020, 1205, 1213, 1467, 3101}},
		"too slow":  {mysql.IsTooSlow, []uint16{1969, 3024}},
		"away":      {away, []uint16{1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1226, 1290, 1836, 1927, 3032, 3100}},
		"busy":      {busy, []uint16{1040, 1203, 1226}},
		"duplicate": {mysql.IsDuplicate, []uint16{1062}},
		"denied":    {mysql.IsDeniedOrUnknown, []uint16{1044, 1054, 1064, 1142, 1143, 1146, 1227}},
		"refused":   {func(err error) bool { return mysql.Refusal(err) != "" }, []uint16{1044, 1045, 1049}},
		"view":      {mysql.IsViewInvalid, []uint16{1356, 1449}},
	} {
		for number := range uint16(4000) {
			err := mysql.Translate(t.Context(), "work", fmt.Errorf("wrapped: %w", serverError(number)))
			if got, want := test.is(err), slices.Contains(test.numbers, number); got != want {
				t.Errorf("error %d is %s: %v, want %v", number, name, got, want)
			}
		}
		for _, err := range []error{nil, io.ErrShortWrite, context.Canceled} {
			if test.is(mysql.Translate(t.Context(), "work", err)) {
				t.Errorf("%v is %s", err, name)
			}
		}
	}
}
