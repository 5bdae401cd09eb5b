//go:build unix

package endtoend_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/queue"
)

// language is a language that has examples.
type language struct{ interpreter, folder, ending string }

// The examples need Debian's packages of drivers, which serve Debian's own interpreters.
var languages = []language{
	{"php", "php", "php"},
	{"/usr/bin/python3", "python", "py"},
}

// exampleLease is the lease of the workers, in seconds.
const exampleLease = 3

// TestTheExamplesConform: the example workers follow docs/queue.md, with a server that is busy, loses answers
// and takes leases away.
func TestTheExamplesConform(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.folder, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(l.interpreter); err != nil {
				t.Fatalf("there is no %s: scripts/install-test-deps gets it", l.interpreter)
			}
			out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", filepath.Join("..", "..", "examples", "conformance.py"), l.interpreter, l.example("worker")).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// office is a site with workers in a language. The workers ask two processes of activityd.
type office struct {
	*ground
	language

	addresses [2]string
	env       []string
	kept      []string // workers' lines on stderr

	mu   sync.Mutex
	sent []string // the workers' own records of sent letters, in order
}

func openOffice(t *testing.T, l language) *office {
	t.Helper()
	g := newGround(t, 10)
	g.exec(t, "CREATE TABLE letters (id BIGINT PRIMARY KEY)")
	token, secret, err := auth.Issue("mailer", auth.Work, auth.Limit{}, "mail")
	must(t, err)
	cfg, err := driver.ParseDSN(g.dsn)
	must(t, err)
	o := &office{ground: g, language: l, env: append(os.Environ(), "QUEUE_TOKEN="+secret, fmt.Sprint("LEASE=", exampleLease),
		"DB_SOCKET="+cfg.Addr, "DB_USER="+cfg.User, "DB_PASSWORD="+cfg.Passwd, "DB_NAME="+cfg.DBName)}
	tokens := filepath.Join(t.TempDir(), "tokens")
	must(t, auth.AppendToken(tokens, token))
	for i := range o.addresses {
		p := serving(t, fmt.Sprint("activityd-", i), g.dsn, "unix://"+g.redis.Addr(), "--token-file="+tokens).mustStart(t)
		o.addresses[i], err = p.address()
		must(t, err)
	}
	return o
}

func (l language) example(name string) string {
	return filepath.Join("..", "..", "examples", l.folder, name+"."+l.ending)
}

// worker is a process that works.
type worker struct {
	*exec.Cmd

	ended chan error
}

// hire starts a worker that asks the process at the index.
func (o *office) hire(t *testing.T, at int) *worker {
	t.Helper()
	w := &worker{exec.CommandContext(t.Context(), o.interpreter, o.example("worker")), make(chan error, 1)}
	w.Env = slices.Concat(o.env, []string{"QUEUE_URL=http://" + o.addresses[at]})
	out, err := w.StdoutPipe()
	must(t, err)
	w.Stderr = writerFunc(func(p []byte) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.kept = append(o.kept, string(p))
	})
	must(t, w.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			o.mu.Lock()
			o.sent = append(o.sent, strings.TrimPrefix(lines.Text(), "sent "))
			o.mu.Unlock()
		}
		w.ended <- w.Wait()
	}()
	t.Cleanup(func() { _ = w.Process.Kill() })
	return w
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

var _ io.Writer = writerFunc(nil)

// fire ends a worker in good order.
func (w *worker) fire(t *testing.T) error {
	t.Helper()
	must(t, w.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-w.ended:
		return err
	case <-time.After(patience):
		t.Fatal("it was told to end, and goes on")
		return nil
	}
}

// post enqueues a letter, as a site does.
func (o *office) post(t *testing.T, key int, to string, seconds float64) (id uint64) {
	t.Helper()
	result, err := o.db.ExecContext(t.Context(), "INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', ?, JSON_OBJECT('to', ?, 'seconds', ?))", key, to, seconds)
	must(t, err)
	last, err := result.LastInsertId()
	must(t, err)
	return uint64(last)
}

// times is how often a letter was sent.
func (o *office) times(to string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range o.sent {
		if one == to {
			n++
		}
	}
	return n
}

func (o *office) awaitSent(t *testing.T, letters ...string) {
	t.Helper()
	for _, to := range letters {
		eventually(t, "the letter to "+to, func() bool { return o.times(to) > 0 })
	}
}

func (o *office) awaitRunning(t *testing.T, id uint64) {
	t.Helper()
	eventually(t, "the task runs", func() bool { return slices.Contains(o.ids(t, queue.Running), id) })
}

func (o *office) ids(t *testing.T, state queue.State) (ids []uint64) {
	t.Helper()
	for _, r := range o.records(t, state) {
		ids = append(ids, r.ID)
	}
	return ids
}

func (o *office) records(t *testing.T, states ...queue.State) []queue.Record {
	t.Helper()
	list, err := o.queue.List(t.Context(), queue.Filter{Queues: []string{"mail"}, States: states}, 1000)
	must(t, err)
	return list
}

func (o *office) awaitAllDone(t *testing.T) {
	t.Helper()
	eventually(t, "all is done", func() bool {
		return len(o.records(t, queue.Waiting, queue.Scheduled, queue.Running)) == 0
	})
}

// TestWorkersOfTheExamples: each example enqueues in its transaction. A worker by HTTP that is killed or stopped loses no task, and
// a task that cannot be done ends with its reason. TestTheExamplesConform compares the languages.
func TestWorkersOfTheExamples(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.folder, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(l.interpreter); err != nil {
				t.Fatalf("there is no %s: scripts/install-test-deps gets it", l.interpreter)
			}
			o := openOffice(t, l)
			t.Cleanup(func() {
				if t.Failed() {
					o.mu.Lock()
					defer o.mu.Unlock()
					t.Logf("sent %q, said %q", o.sent, o.kept)
				}
			})
			o.enqueues(t)
			if l.folder == "python" {
				o.works(t)
			}
		})
	}
}

// enqueues runs the example that enqueues: it commits, or undoes all.
func (o *office) enqueues(t *testing.T) {
	t.Helper()
	post := func(letter, to string) error {
		args, err := json.Marshal(map[string]string{"to": to})
		must(t, err)
		enqueue := exec.CommandContext(t.Context(), o.interpreter, o.example("enqueue"), letter, "7", string(args))
		enqueue.Env = o.env
		out, err := enqueue.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	must(t, post("1", `Zoë's "cat" \`))
	if err := post("1", "nobody"); err == nil || !strings.Contains(err.Error(), "1062") && !strings.Contains(err.Error(), "uplicate") {
		t.Errorf("a letter that there is already: %v", err)
	}
	must(t, post("2", "Ada"))
	if list := o.records(t); len(list) != 2 || list[0].Key != 7 || list[0].Kind != "letter" {
		t.Fatalf("enqueued %+v", list)
	}
}

func (o *office) works(t *testing.T) {
	t.Helper()
	first := o.hire(t, 0)
	o.awaitSent(t, `Zoë's "cat" \`, "Ada")

	// Killed at work, with a task of the key behind it.
	id := o.post(t, 1, "killed", 1)
	o.post(t, 1, "after killed", 0)
	o.awaitRunning(t, id)
	must(t, first.Process.Kill())
	<-first.ended
	second := o.hire(t, 1)
	o.awaitSent(t, "killed", "after killed")

	// A worker stops past its lease. Another worker does the task, and the first notices when it goes on.
	id = o.post(t, 2, "stopped", 1)
	o.post(t, 2, "after stopped", 0)
	o.awaitRunning(t, id)
	must(t, second.Process.Signal(syscall.SIGSTOP))
	third := o.hire(t, 0)
	o.awaitSent(t, "stopped", "after stopped")
	must(t, second.Process.Signal(syscall.SIGCONT))
	if err := third.fire(t); err != nil && !strings.Contains(err.Error(), "terminated") {
		t.Errorf("idle, it ended with %v", err)
	}
	o.post(t, 3, "second again", 0)
	o.awaitSent(t, "second again")

	// A task that cannot be done ends with its reason.
	o.exec(t, "INSERT INTO tasks (queue, type, subject, args, max_attempts) VALUES ('mail', 'letter', 6, '{\"to\": \"\"}', 2)")
	o.exec(t, "INSERT INTO tasks (queue, type, subject) VALUES ('mail', 'parcel', 0)")
	o.awaitAllDone(t)
	dead := o.records(t, queue.Dead)
	if len(dead) != 2 || dead[0].Attempts != 2 || !strings.Contains(dead[0].LastError, "a letter to nobody") || dead[1].Attempts != 1 || dead[1].LastError != "no such type of job" {
		t.Errorf("dead are %+v", dead)
	}

	if err := second.fire(t); err != nil && !strings.Contains(err.Error(), "terminated") {
		t.Errorf("idle, it ended with %v", err)
	}
	for _, never := range []string{"nobody", ""} {
		if o.times(never) > 0 {
			t.Errorf("sent to %q", never)
		}
	}
}
