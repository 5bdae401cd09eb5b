package mysql_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/mysql"
)

func serverError(number uint16) error {
	return &sqldriver.MySQLError{Number: number, Message: "as the server says it"}
}

// timeout is like the error of package net, which matches that of a context.
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
	if err := mysql.Translate(ctx, "work", driver.ErrBadConn); !errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("a bad connection: %v, want ErrUnavailable", err)
	}
	plain := errors.New("something else")
	if err := mysql.Translate(ctx, "work", plain); !errors.Is(err, plain) || errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("another error: %v", err)
	}
}

func TestIsRetryable(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]bool{1213: true, 1205: true, 1020: true, 1467: true, 1062: false, 1053: false, 1146: false} {
		err := mysql.Translate(t.Context(), "work", fmt.Errorf("wrapped: %w", serverError(number)))
		if got := mysql.IsRetryable(err); got != want {
			t.Errorf("IsRetryable(%v) = %t, want %t", err, got, want)
		}
	}
	for _, err := range []error{nil, io.EOF, context.Canceled} {
		if mysql.IsRetryable(err) {
			t.Errorf("IsRetryable(%v) = true", err)
		}
	}
}

func TestWhatTakesTooLongIsKnown(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]bool{3024: true, 1969: true, 1205: false, 1927: false} {
		if got := mysql.IsTooSlow(fmt.Errorf("wrapped: %w", serverError(number))); got != want {
			t.Errorf("error %d is too slow: %v, want %v", number, got, want)
		}
	}
}
