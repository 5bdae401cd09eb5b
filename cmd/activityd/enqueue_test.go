package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// ndjson is a file of uploads, the member's number being that of the line.
func ndjson(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "{\"type\":\"upload\",\"user_id\":\"%d\"}\n", i)
	}
	return b.String()
}

// fed runs activityd with an input.
func fed(ctx context.Context, in io.Reader, args ...string) (stdout, stderr *logtest.Log, err error) {
	stdout, stderr = &logtest.Log{}, &logtest.Log{}
	return stdout, stderr, feed(ctx, in, stdout, stderr, args...)
}

func feed(ctx context.Context, in io.Reader, stdout, stderr io.Writer, args ...string) error {
	root := newRoot(nil, stdout, stderr)
	root.SetArgs(args)
	root.SetIn(in)
	return root.ExecuteContext(ctx)
}

// queueOf opens the database of a DSN for a look at its tasks.
func queueOf(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := mysql.Open(dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	must(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func TestEnqueueManyFromAFile(t *testing.T) {
	t.Parallel()
	const lines = 20_000
	dsn := servertest.MySQLDSN(t)
	path := filepath.Join(t.TempDir(), "changes.ndjson")
	must(t, os.WriteFile(path, []byte("\r\n"+ndjson(2, lines+1)+"  \n\n"), 0o600))
	in, err := os.Open(path)
	must(t, err)
	defer func() { _ = in.Close() }()
	out, _, err := fed(t.Context(), in, "enqueue", "-", "--mysql-dsn="+dsn)
	must(t, err)
	if out.String() != "enqueued 20000 tasks\n" {
		t.Errorf("printed %q", out)
	}
	db := queueOf(t, dsn)
	if n := number(t, db, "SELECT COUNT(*) FROM tasks WHERE type = 'upload' AND queue = 'default' AND subject BETWEEN 2 AND 20001"); n != lines {
		t.Errorf("%d tasks", n)
	}
}

// A task of any type goes where it is told, about a number or a name.
func TestEnqueueATypeOfYourOwn(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := queueOf(t, dsn)
	for _, c := range []struct {
		args, where, refusal string
	}{
		{`receipt 7 {"total":12} --queue=mails`, "type = 'receipt' AND queue = 'mails' AND subject = 7 AND JSON_VALUE(args, '$.total') = 12 AND dedupe_key IS NULL", ""},
		{"receipt order/7 --queue=mails --priority=-5 --delay=1m", "type = 'receipt' AND subject = CONV(LEFT(SHA2('order/7', 256), 16), 16, 10) AND priority = -5 AND run_at > created_at", ""},
		{"receipt 0", "subject = 0", "a task of your own needs a queue of your own, by --queue: workers of activityd serve take from queue default"},
		{"uplod 5", "type = 'uplod'", "none of activityd's ("},
		{"Upload 5", "type = 'Upload' AND subject = 5", "none of activityd's ("},
		{"receipt 0 --queue=Refill", "subject = 0", "from queue Refill"},
		{"receipt 0 --queue=push_urgent", "subject = 0", "from queue push_urgent"},
		{"uploads 6 --queue=mails", "type = 'uploads' AND queue = 'mails'", ""},
	} {
		out, errs, err := fed(t.Context(), nil, append([]string{"enqueue", "--mysql-dsn=" + dsn}, strings.Fields(c.args)...)...)
		if c.refusal == "" {
			must(t, err)
		} else if err == nil || !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v, want %q", c.args, err, c.refusal)
		}
		want := 1
		if c.refusal != "" {
			want = 0
		}
		if n := number(t, db, "SELECT COUNT(*) FROM tasks WHERE "+c.where); n != want {
			t.Errorf("%s: %d tasks with %s, printed %s", c.args, n, c.where, out)
		}
		if errs.String() != "" {
			t.Errorf("%s: said %q", c.args, errs)
		}
	}
}

var goOn = regexp.MustCompile(`(\d+) tasks were enqueued; go on with line (\d+): tail -n \+\d+$`)

// leftOff reads from an error how many tasks were enqueued and how to go on.
func leftOff(t *testing.T, err error) (enqueued, from int) {
	t.Helper()
	if err == nil {
		t.Fatal("it did not fail")
	}
	words := goOn.FindStringSubmatch(err.Error())
	if words == nil {
		t.Fatalf("no word of how to go on: %v", err)
	}
	_, scanned := fmt.Sscan(words[1]+" "+words[2], &enqueued, &from)
	must(t, scanned)
	return enqueued, from
}

// A bad line stops before its batch; mended, the rest goes in from where it says.
func TestEnqueueManyStopsAtABadLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ bad, want string }{
		"no JSON":   {"{\"type\":\"upload\",\n", "line 2500: malformed"},
		"no task":   {"{\"type\":\"upload\"}\n", "line 2500: user_id: is missing"},
		"very long": {strings.Repeat("x", 1<<20) + "\n", "line 2500: the line has more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := servertest.MySQLDSN(t)
			db := queueOf(t, dsn)
			_, _, err := fed(t.Context(), strings.NewReader(ndjson(1, 2499)+test.bad+ndjson(2501, 3000)), "enqueue", "-", "--mysql-dsn="+dsn)
			enqueued, from := leftOff(t, err)
			if !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
			if n := number(t, db, "SELECT COUNT(*) FROM tasks"); n != enqueued || from != enqueued+1 || from > 2500 {
				t.Errorf("%d tasks, %d were said, and to go on from %d", n, enqueued, from)
			}
			_, _, err = fed(t.Context(), strings.NewReader(ndjson(from, 3000)), "enqueue", "-", "--mysql-dsn="+dsn)
			if n := number(t, db, "SELECT COUNT(*) FROM tasks"); err != nil || n != 3000 {
				t.Errorf("in the end: %d tasks, %v", n, err)
			}
		})
	}
}

// A signal ends it between two batches, even while the input is silent. The reported place is true.
func TestEnqueueManyIsInterrupted(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := queueOf(t, dsn)
	in, feeder := io.Pipe()
	defer func() { _ = feeder.Close() }()
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- feed(ctx, in, io.Discard, io.Discard, "enqueue", "-", "--mysql-dsn="+dsn) }()
	_, err := io.WriteString(feeder, ndjson(1, 2500))
	must(t, err)
	eventually(t, "all lines are enqueued, though no full batch", func() bool { return number(t, db, "SELECT COUNT(*) FROM tasks") == 2500 })
	interrupt()
	err = <-ended
	if enqueued, from := leftOff(t, err); !errors.Is(err, errSignalled) || enqueued != 2500 || from != 2501 {
		t.Errorf("error %v", err)
	}
}

// A line that is cut off by the failure is not blamed.
func TestEnqueueManySaysWhenTheInputFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	in := io.MultiReader(strings.NewReader(ndjson(1, 7)+`{"type":"up`), iotest.ErrReader(broken))
	_, _, err := fed(t.Context(), in, "enqueue", "-", "--mysql-dsn="+servertest.MySQLDSN(t))
	if enqueued, from := leftOff(t, err); from != enqueued+1 || !strings.HasPrefix(err.Error(), "line 8: read the input: ") || !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
