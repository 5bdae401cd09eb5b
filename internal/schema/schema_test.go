package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/schema"
)

// recorder takes statements in place of a database and fails from one on.
type recorder struct {
	got    []string
	failAt int
}

var errBroken = errors.New("broken")

func (r *recorder) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	r.got = append(r.got, query)
	if len(r.got) == r.failAt {
		return nil, errBroken
	}
	return nil, nil
}

func TestApplyRunsEveryStatementOnce(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	if err := schema.Apply(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.got, schema.Statements()) {
		t.Errorf("ran %q", r.got)
	}
}

func TestApplyStopsAtAnErrorAndNamesTheStatement(t *testing.T) {
	t.Parallel()
	r := &recorder{failAt: 2}
	err := schema.Apply(t.Context(), r)
	if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "statement 2 (CREATE TABLE IF NOT EXISTS contacts)") {
		t.Errorf("error %v", err)
	}
	if len(r.got) != 2 {
		t.Errorf("%d statements were run, want 2", len(r.got))
	}
}

func TestStatementsAreTablesThatMayBeAppliedAgain(t *testing.T) {
	t.Parallel()
	all := strings.Join(schema.Statements(), "\n")
	for _, table := range []string{"users", "contacts", "blocks", "photos", "tasks"} {
		if !strings.Contains(all, "CREATE TABLE IF NOT EXISTS "+table+" (") {
			t.Errorf("no statement makes %s", table)
		}
	}
	for _, statement := range schema.Statements() {
		if !strings.HasPrefix(statement, "CREATE TABLE IF NOT EXISTS ") {
			t.Errorf("not safe to apply again: %s", statement)
		}
	}
}
