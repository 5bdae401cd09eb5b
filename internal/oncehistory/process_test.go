package oncehistory_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// serverVariable names the server of a process that is a client: this program again, which
// does what it reads from its standard input, one line after the other.
const serverVariable = "ACTIVITYD_HISTORY_CLIENT"

func TestMain(m *testing.M) {
	if server := os.Getenv(serverVariable); server != "" {
		if err := beClient(context.Background(), server); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	quiet()
	servertest.Main(m)
}

// errand is what a process is told to do.
type errand struct {
	Name   string
	Get    bool
	Action once.Action
	Owner  string
	Terms  once.Terms
	Reason string
	Write  *write // instead of an operation
}

// result is what it answers.
type result struct {
	Reply once.Reply
	Wrote wrote
	Error string
}

// operate is the errand to apply an operation.
func operate(name string, op once.Operation) errand {
	return errand{Name: name, Action: op.Action, Owner: op.Owner, Terms: op.Terms, Reason: op.Reason}
}

// beClient is the process.
func beClient(ctx context.Context, server string) error {
	quiet()
	store, db, err := connect(server)
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var e errand
		if err := in.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var res result
		switch {
		case e.Get:
			res.Reply, err = store.Get(ctx, e.Name)
		case e.Write != nil:
			res.Wrote, err = e.Write.do(ctx, db)
		default:
			res.Reply, err = store.Apply(ctx, e.Name, once.Operation{Action: e.Action, Owner: e.Owner, Terms: e.Terms, Reason: e.Reason})
		}
		if err != nil {
			res.Error = err.Error()
		}
		if err := out.Encode(res); err != nil {
			return err
		}
	}
}

// process is a client in a process of its own, to be stopped and killed. It is a
// [once.Store], as far as players need one.
type process struct {
	once.Store

	server string

	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func (p *process) start(ctx context.Context) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// The process does not end with the history.
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program)
	p.cmd.Env = append(os.Environ(), serverVariable+"="+p.server)
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.out = json.NewDecoder(bufio.NewReader(out))
	return p.cmd.Start()
}

// end kills it. It may be started again.
func (p *process) end() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // with an error: it was killed
	p.cmd = nil
}

// errKilled: the process was killed while it did an errand.
var errKilled = fmt.Errorf("%w: the process was killed", errCut)

// do does one errand. meanwhile is called when it was sent, before its answer is
// awaited, and reports whether it killed the process.
func (p *process) do(ctx context.Context, e errand, meanwhile func(*os.Process) (killed bool)) (res result, err error) {
	if p.cmd == nil {
		if err := p.start(ctx); err != nil {
			return result{}, err
		}
	}
	if err := json.NewEncoder(p.in).Encode(e); err != nil {
		return result{}, err
	}
	killed := meanwhile(p.cmd.Process)
	err = p.out.Decode(&res)
	if killed || err != nil {
		p.end()
	}
	switch {
	case err != nil:
		return result{}, fmt.Errorf("%w: %w", errKilled, err)
	case res.Error != "":
		return result{}, fmt.Errorf("%w: %s", errCut, res.Error)
	}
	return res, nil
}

// stopped is a client that is a process which is stopped now and then, for longer than its
// lease, and killed.
type stopped struct {
	*player
	*process
}

// Apply implements [once.Store].
func (s stopped) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	res, err := s.do(ctx, operate(name, op), s.disturb(ctx))
	return res.Reply, err
}

// Get implements [once.Store].
func (s stopped) Get(ctx context.Context, name string) (once.Reply, error) {
	res, err := s.do(ctx, errand{Name: name, Get: true}, s.disturb(ctx))
	return res.Reply, err
}

// disturb returns what happens to the process while it does an errand.
func (s stopped) disturb(ctx context.Context) func(*os.Process) (killed bool) {
	late := time.Duration(s.choices.Int64N(int64(500 * time.Microsecond)))
	n := s.choices.IntN(8)
	return func(p *os.Process) bool {
		if n > 2 {
			return false
		}
		s.fail(retry.Sleep(ctx, late))
		if n == 0 {
			s.kills.Add(1)
			s.fail(p.Kill())
			return true
		}
		s.stops.Add(1)
		s.fail(p.Signal(syscall.SIGSTOP))
		tester := *s.player // its lease ends meanwhile, and others go on
		tester.id, tester.store = 1, s.clients[0]
		for _, t := range s.terms {
			in := request{action: age, by: t.Lease}
			s.record(s.history, 1, in, func() answer { return tester.ask(ctx, in) })
		}
		s.fail(errors.Join(retry.Sleep(ctx, 3*s.pause), p.Signal(syscall.SIGCONT)))
		return false
	}
}

// asProcess plays as a process. Nothing else uses that at the same time.
func (p *player) asProcess(ctx context.Context) {
	child, giveBack := p.process()
	defer giveBack()
	p.store = stopped{p, child}
	p.play(ctx)
}

// processes returns a few processes, which clients of many histories use, one after the
// other. They end with t.
func processes(t testing.TB, server string, n int) func() (*process, func()) {
	t.Helper()
	free := make(chan *process, n)
	for range n {
		p := &process{server: server}
		free <- p
		t.Cleanup(p.end)
	}
	return func() (*process, func()) {
		p := <-free
		return p, func() { free <- p }
	}
}
