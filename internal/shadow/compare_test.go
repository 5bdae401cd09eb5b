package shadow

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// What the statement yields beyond the limit is thrown away, and no longer than the context lasts.
func TestTheRestOfAnAnswerIsBounded(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	v := w.add(t, 1)[0]
	w.refill(t, v)
	// The first row is longer than what the server keeps back.
	own, err := ParseStatement("SELECT 10 * :viewer + 1, REPEAT('x', 100000) UNION ALL SELECT 1 + SLEEP(100), ''")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := w.comparer(t, time.Minute).Compare(ctx, own, contacts.Viewer{ID: v}, 1, true)
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it goes on without its context")
	}
	many, err := ParseStatement("SELECT p.id FROM photos p, photos q WHERE p.id = 10 * :viewer + 1")
	must(t, err)
	if c, err := w.comparer(t, 0).Compare(t.Context(), many, contacts.Viewer{ID: v}, 1, true); err != nil || c.Difference != nil {
		t.Errorf("of many rows, the first: %+v, %v", c.Difference, err)
	}
}

// hungAuditor waits for servers that do not answer.
type hungAuditor struct{}

func (hungAuditor) Check(ctx context.Context, _ []member.ID) (audit.Report, error) {
	<-ctx.Done()
	return audit.Report{}, ctx.Err()
}

// A server that hangs while a set is looked at again is away.
func TestAnAuditThatHangsEnds(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	v := w.add(t, 1)[0]
	w.refill(t, v)
	w.plant(t, "UPDATE users SET last_upload = 3000 WHERE id = :c; "+follow, v)
	own, err := ParseStatement("SELECT 10 * :viewer + 5")
	must(t, err)
	c := w.comparer(t, 0)
	c.options.Auditor, c.auditTime = hungAuditor{}, 10*time.Millisecond
	if out, err := c.Compare(t.Context(), own, contacts.Viewer{ID: v}, 10, true); !errors.Is(err, mysql.ErrUnavailable) || out.Difference != nil {
		t.Errorf("%+v, %v", out.Difference, err)
	}
}
