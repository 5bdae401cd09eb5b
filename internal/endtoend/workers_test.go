//go:build unix

package endtoend_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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
const exampleLease = 2

// office is a site with workers in a language.
type office struct {
	*ground
	language

	env []string

	mu   sync.Mutex
	sent []string // the workers' own records of sent letters, in order
}

func openOffice(t *testing.T, l language) *office {
	t.Helper()
	g := newGround(t, 10)
	g.exec(t, "CREATE TABLE letters (id BIGINT PRIMARY KEY)")
	token, secret, err := auth.Issue("mailer", auth.Work, auth.Limit{}, "mail")
	must(t, err)
	tokens := filepath.Join(t.TempDir(), "tokens")
	must(t, auth.AppendToken(tokens, token))
	address, err := serving(t, "activityd", g.dsn, g.redis.URL(), "--token-file="+tokens).mustStart(t).address()
	must(t, err)
	cfg, err := driver.ParseDSN(g.dsn)
	must(t, err)
	return &office{ground: g, language: l, env: append(os.Environ(), "QUEUE_URL=http://"+address, "QUEUE_TOKEN="+secret, fmt.Sprint("LEASE=", exampleLease),
		"DB_SOCKET="+cfg.Addr, "DB_USER="+cfg.User, "DB_PASSWORD="+cfg.Passwd, "DB_NAME="+cfg.DBName)}
}

func (l language) example(name string) string {
	return filepath.Join("..", "..", "examples", l.folder, name+"."+l.ending)
}

// hire starts a worker, which is killed at the end of t at the latest.
func (o *office) hire(t *testing.T) *exec.Cmd {
	t.Helper()
	w := exec.CommandContext(t.Context(), o.interpreter, o.example("worker"))
	w.Env, w.Stderr = o.env, t.Output()
	out, err := w.StdoutPipe()
	must(t, err)
	must(t, w.Start())
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			o.mu.Lock()
			o.sent = append(o.sent, strings.TrimPrefix(lines.Text(), "sent "))
			o.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = w.Process.Kill() // it may have ended
		reading.Wait()
		_ = w.Wait()
	})
	return w
}

// post enqueues a letter, as a site does.
func (o *office) post(t *testing.T, key int, to string, seconds float64) {
	t.Helper()
	o.exec(t, "INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', ?, JSON_OBJECT('to', ?, 'seconds', ?))", key, to, seconds)
}

func (o *office) awaitSent(t *testing.T, letters ...string) {
	t.Helper()
	for _, to := range letters {
		eventually(t, "the letter to "+to, func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return slices.Contains(o.sent, to)
		})
	}
}

func (o *office) records(t *testing.T, states ...queue.State) []queue.Record {
	t.Helper()
	list, err := o.queue.List(t.Context(), queue.Filter{Queues: []string{"mail"}, States: states}, 1000)
	must(t, err)
	return list
}

// TestWorkersOfTheExamples: the example workers follow docs/queue.md, with a server that is busy, loses answers and takes
// leases away. Each example enqueues in its transaction, and a worker by HTTP that is killed loses no task.
func TestWorkersOfTheExamples(t *testing.T) {
	t.Parallel()
	for _, l := range languages {
		t.Run(l.folder, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(l.interpreter); err != nil {
				t.Fatalf("there is no %s: scripts/install-test-deps gets it", l.interpreter)
			}
			judged, err := exec.CommandContext(t.Context(), "/usr/bin/python3", filepath.Join("..", "..", "examples", "conformance.py"), l.interpreter, l.example("worker")).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, judged)
			}
			o := openOffice(t, l)
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
	first := o.hire(t)
	o.awaitSent(t, `Zoë's "cat" \`, "Ada")

	// Killed at work, with a task of the key behind it.
	o.post(t, 1, "killed", 1)
	o.post(t, 1, "after killed", 0)
	eventually(t, "the task runs", func() bool { return len(o.records(t, queue.Running)) > 0 })
	must(t, first.Process.Kill())
	o.hire(t)
	o.awaitSent(t, "killed", "after killed")
}
