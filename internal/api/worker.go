package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// Leaser leases the tasks of queues to workers in the site's programs; see [queue.Queue]. It must be
// safe for concurrent use and return soon after ctx ends.
type Leaser interface {
	ClaimAs(ctx context.Context, owner, queue string, n int, lease time.Duration) ([]queue.Task, error)
	FinishLease(ctx context.Context, queue, token string, ends []queue.Result) (open int, err error)
	ExtendLease(ctx context.Context, queue, token string, lease time.Duration) (until time.Time, err error)
}

// The bounds of workers' requests, and the default of a lease.
const (
	maxClaimed   = 100
	maxWait      = 30 * time.Second
	minLease     = time.Second
	maxLease     = time.Hour
	defaultLease = time.Minute
	maxAgain     = 7 * 24 * time.Hour
	maxWaiters   = 1000 // claims that wait: each is a connection, and a goroutine
	claimPoll    = time.Second
)

// pathOfQueues begins the paths of workers.
const pathOfQueues = "/v1/queues/"

// ofQueue returns the handler of a route about a queue, which its caller may work on.
func ofQueue(handle func(s *Server, k *call, name string) (any, error)) handler {
	return func(s *Server, k *call) (any, error) {
		name, queues := k.Param("queue"), k.access.caller.Queues
		var f strictjson.Faults
		if !auth.IsQueue(name) {
			f.Addf("queue", "%q: want 1 to 32 small letters, digits, dots, dashes and underscores, a letter or digit first", strictjson.Clip(name))
		}
		parseQuery(k.QueryString(), &f)
		switch {
		case s.cfg.Leaser == nil:
			return nil, noSuchResource.problem("this server leases no tasks, as it runs without MySQL")
		case len(f) > 0:
			return nil, invalidParameter.fields(f)
		case s.cfg.Auth != nil && !slices.Contains(queues, name):
			return nil, scopeProblem("the token is for the "+strictjson.List(queues, "and")+" queue, and not for "+name, auth.Work)
		case slices.ContainsFunc(s.cfg.OwnQueues, func(own string) bool { return strings.EqualFold(own, name) }): // MySQL folds case
			return nil, scopeProblem("activityd itself works on the queue "+name+": choose another for tasks of your own", auth.Work)
		}
		answer, err := handle(s, k, name)
		if err != nil {
			return nil, fmt.Errorf("tasks of queue %s: %w", name, err)
		}
		return answer, nil
	}
}

type claimJSON struct {
	Token string     `json:"lease_token,omitempty"`
	Until int64      `json:"lease_until_ms,omitempty"`
	Tasks []taskJSON `json:"tasks"`
}

type taskJSON struct {
	ID          uint64          `json:"id,string"`
	Type        string          `json:"type"`
	Key         uint64          `json:"key,string"`
	Args        json.RawMessage `json:"args"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Enqueued    int64           `json:"enqueued_ms"`
}

// claimTasks leases tasks to a worker, and waits until there are some. An answer that does not arrive costs the lease.
func (s *Server) claimTasks(c *call, name string) (any, error) {
	n, wait, lease := int64(1), time.Duration(0), time.Duration(0)
	err := s.readObject(c, []string{"max", "wait", "lease"}, func(o strictjson.Object) {
		if most, ok := o.Whole("max", 1, maxClaimed); ok {
			n = most
		}
		wait = duration(o, "wait", 0, maxWait, 0)
		lease = duration(o, "lease", minLease, maxLease, defaultLease)
	})
	if err != nil {
		return nil, err
	}
	if wait > 0 { // the server has shorter deadlines
		control, end := http.NewResponseController(c.Response().Writer), time.Now().Add(wait+s.cfg.RequestTimeout+writeGrace)
		_, _ = control.SetReadDeadline(end), control.SetWriteDeadline(end) // a recorder has none
	}
	tasks, err := s.waiters.await(c.Request().Context(), name, wait, func(ctx context.Context) ([]queue.Task, error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
		defer cancel()
		return s.cfg.Leaser.ClaimAs(ctx, cmp.Or(c.access.caller.Name, "http"), name, int(n), lease)
	})
	answer := claimJSON{Tasks: each(tasks, func(t queue.Task) taskJSON {
		return taskJSON{t.ID, t.Kind, t.Key, t.Payload, t.Attempts, t.MaxAttempts, t.Created.UnixMilli()}
	})}
	if len(tasks) > 0 {
		answer.Token, answer.Until = tasks[0].Lease, tasks[0].Claimed.Add(lease).UnixMilli()
	}
	return answer, err
}

// waiters are the claims that wait. The first claim of a queue looks for tasks, when it is notified and once a second, and
// the next claims wait for its turn: so a task wakes one claim, however many wait.
type waiters struct {
	notifier *notify.Notifier
	stopping context.Context // ends when the server stops

	count atomic.Int32
	mu    sync.Mutex
	turns map[string]*turn // by queue, of claims that wait
}

// turn is the turn of the claims of a queue.
type turn struct {
	claims int
	taken  chan struct{} // holds a value while a claim looks
}

// enter returns the turn of a queue, and leave, which the claim must call.
func (w *waiters) enter(name string) (t *turn, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t = w.turns[name]; t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		w.turns[name] = t
	}
	t.claims++
	return t, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if t.claims--; t.claims == 0 {
			delete(w.turns, name)
		}
	}
}

// await repeats claim until it finds tasks, wait is over or the server stops.
func (w *waiters) await(ctx context.Context, name string, wait time.Duration, claim func(context.Context) ([]queue.Task, error)) ([]queue.Task, error) {
	if wait == 0 {
		return claim(ctx)
	}
	defer w.count.Add(-1)
	if w.count.Add(1) > maxWaiters {
		return nil, busy.problem("%d claims wait for tasks already; try again after Retry-After seconds", maxWaiters)
	}
	until, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(w.stopping, cancel)()
	turn, leave := w.enter(name)
	defer leave()
	select {
	case turn.taken <- struct{}{}:
		defer func() { <-turn.taken }()
	case <-until.Done():
		return nil, ctx.Err()
	}
	notified, unsubscribe := w.notifier.Subscribe(name)
	defer unsubscribe()
	for {
		tasks, err := claim(ctx)
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
		select {
		case <-notified:
		case <-time.After(retry.Jitter(claimPoll)):
		case <-until.Done():
			return nil, ctx.Err()
		}
	}
}

// finishTasks records how tasks of a lease ended.
func (s *Server) finishTasks(c *call, name string) (any, error) {
	var token string
	var ends []queue.Result
	err := s.readObject(c, []string{"lease_token", "done", "failed", "released"}, func(o strictjson.Object) {
		token = text(o, "lease_token", "the token of the lease")
		ends = readEnds(o)
	})
	if err != nil {
		return nil, err
	}
	open, err := s.cfg.Leaser.FinishLease(c.Request().Context(), name, token, ends)
	return map[string]int{"open": open}, err
}

// extendLease makes a lease longer.
func (s *Server) extendLease(c *call, name string) (any, error) {
	var token string
	var lease time.Duration
	err := s.readObject(c, []string{"lease_token", "lease"}, func(o strictjson.Object) {
		token = text(o, "lease_token", "the token of the lease")
		lease = duration(o, "lease", minLease, maxLease, defaultLease)
	})
	if err != nil {
		return nil, err
	}
	until, err := s.cfg.Leaser.ExtendLease(c.Request().Context(), name, token, lease)
	return map[string]int64{"lease_until_ms": until.UnixMilli()}, err
}

// readEnds reads how tasks ended: each is named once.
func readEnds(o strictjson.Object) (ends []queue.Result) {
	for _, name := range []string{"done", "failed", "released"} {
		value, ok := o.Get(name)
		if !ok {
			continue
		}
		list, _ := o.Reader.Array(name, value, "tasks", 0, maxClaimed)
		for i, item := range list {
			place, end := strictjson.Item(name, i), queue.Result{}
			switch name {
			case "failed":
				place, item, end.Err = readFailure(o.Reader, place, item)
			case "released":
				end.Err = queue.Later(0, errors.New("its worker released it"))
			}
			text := strings.TrimSuffix(strings.TrimPrefix(string(item), `"`), `"`)
			if end.Task.ID, _ = strconv.ParseUint(text, 10, 64); strconv.FormatUint(end.Task.ID, 10) != text { // an error leaves another id
				o.Reader.Addf(place, "want the id of a task, got %q", strictjson.Clip(string(item)))
			}
			if slices.ContainsFunc(ends, func(e queue.Result) bool { return e.Task.ID == end.Task.ID }) {
				o.Reader.Addf(place, "is named twice")
			}
			ends = append(ends, end)
		}
	}
	if len(ends) == 0 && len(o.Reader.Faults) == 0 {
		o.Addf("", "names no task: want done, failed or released")
	}
	return ends
}

// readFailure reads why a task failed, when it is tried again, and where its id is.
func readFailure(r *strictjson.Reader, place string, item json.RawMessage) (at string, id json.RawMessage, failed error) {
	o, ok := r.Object(place, item)
	if !ok {
		return place, item, nil
	}
	o.Only("id", "error", "retry_after", "permanent")
	failed = errors.New(text(o, "error", "why it failed, in words"))
	after := duration(o, "retry_after", time.Millisecond, maxAgain, 0)
	permanent, _ := o.Bool("permanent")
	switch {
	case permanent && after > 0:
		o.Addf("retry_after", "is given beside permanent: want one of the two")
	case permanent:
		failed = queue.Permanent(failed)
	case after > 0:
		failed = queue.RetryAfter(after, failed)
	}
	id, _ = o.Get("id")
	return r.At(place, "id"), id, failed
}

// text reads a field that is required, and not empty.
func text(o strictjson.Object, name, want string) (text string) {
	if _, ok := o.Need(name, want); ok {
		if text, ok = o.String(name, want); ok && text == "" {
			o.Addf(name, "is empty: want %s", want)
		}
	}
	return text
}

// duration reads a field that is a duration, if it is given.
func duration(o strictjson.Object, name string, least, most, otherwise time.Duration) time.Duration {
	want := fmt.Sprintf("a duration from %s to %s, such as \"30s\"", least, most)
	text, ok := o.String(name, want)
	if !ok {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		o.Addf(name, "want %s, got %q", want, strictjson.Clip(text))
	}
	return d
}
