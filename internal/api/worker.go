package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// Lender lends the tasks of queues to workers in other programs; see [queue.Queue]. It must be
// safe for concurrent use and return soon after ctx ends.
type Lender interface {
	ClaimAs(ctx context.Context, owner, queue string, n int, lease time.Duration) ([]queue.Task, error)
	Release(ctx context.Context, claimed []queue.Task) error
	FinishLease(ctx context.Context, queue, token string, ends []queue.End) (open int, err error)
	ExtendLease(ctx context.Context, queue, token string, lease time.Duration) (until time.Time, err error)
}

// pathOfQueues begins the paths that are for workers in other programs.
const pathOfQueues = "/v1/queues/"

func isClaim(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, pathOfQueues) && strings.HasSuffix(r.URL.Path, "/claim")
}

// The bounds of what workers ask for, and the defaults.
const (
	maxLent      = 100
	maxWait      = 30 * time.Second
	minLease     = time.Second
	maxLease     = time.Hour
	defaultLease = time.Minute
	maxAgain     = 7 * 24 * time.Hour
	// recheckAfter is how long a claim may wait until its token is looked at again.
	recheckAfter = time.Second
)

var errNoQueues = noSuchResource.problem("this server lends no tasks, as it runs without MySQL")

// queueOf returns the queue of a request, which its caller may work on.
func (s *Server) queueOf(c echo.Context) (string, error) {
	name, caller := c.Param("queue"), callerOf(c)
	switch {
	case s.cfg.Lender == nil:
		return "", errNoQueues
	case !auth.IsQueue(name):
		var f strictjson.Faults
		f.Addf("queue", "%q: want 1 to 32 small letters, digits, dots, dashes and underscores, a letter or digit first", strictjson.Clip(name))
		return "", invalidParameter.fields(f)
	case s.cfg.Auth != nil && !slices.Contains(caller.Queues, name):
		return "", scopeProblem("the token is for the "+strictjson.List(caller.Queues, "and")+" queue, and not for "+name, auth.Work)
	case slices.ContainsFunc(s.cfg.OwnQueues, func(own string) bool { return strings.EqualFold(own, name) }): // to the database they are one
		return "", scopeProblem("activityd itself works on the queue "+name+": choose another for tasks of your own", auth.Work)
	}
	return name, nil
}

// bodyOf reads the body of a request about a queue, which may have the fields.
func (s *Server) bodyOf(c echo.Context, read func(o strictjson.Object), fields ...string) error {
	var f strictjson.Faults
	parseQuery(c.QueryString(), &f)
	if len(f) > 0 {
		return invalidParameter.fields(f)
	}
	return s.readObject(c, fields, read)
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

// leaseToken reads the token of a lease.
func leaseToken(o strictjson.Object) string {
	const want = "the token of the lease"
	if _, ok := o.Need("lease_token", want); !ok {
		return ""
	}
	token, _ := o.String("lease_token", want)
	return token
}

type claimedJSON struct {
	Token string     `json:"lease_token,omitempty"`
	Until int64      `json:"lease_until_ms,omitempty"`
	Tasks []lentJSON `json:"tasks"`
}

type lentJSON struct {
	ID          uint64          `json:"id,string"`
	Type        string          `json:"type"`
	Key         uint64          `json:"key,string"`
	Args        json.RawMessage `json:"args"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	Enqueued    int64           `json:"enqueued_ms"`
}

func (s *Server) addWorkerRoutes() {
	s.echo.POST(pathOfQueues+":queue/claim", s.claimTasks, s.require(auth.Work))
	s.echo.POST(pathOfQueues+":queue/finish", s.finishTasks, s.require(auth.Work))
	s.echo.POST(pathOfQueues+":queue/extend", s.extendLease, s.require(auth.Work))
}

// claimTasks lends tasks to a worker, and waits until there are some. What cannot be sent to the worker any
// more is given back.
func (s *Server) claimTasks(c echo.Context) error {
	name, err := s.queueOf(c)
	if err != nil {
		return err
	}
	most, wait, lease := int64(1), time.Duration(0), time.Duration(0)
	err = s.bodyOf(c, func(o strictjson.Object) {
		if n, ok := o.Whole("max", 1, maxLent); ok {
			most = n
		}
		wait = duration(o, "wait", 0, maxWait, 0)
		lease = duration(o, "lease", minLease, maxLease, defaultLease)
	}, "max", "wait", "lease")
	if err != nil {
		return err
	}
	ctx, control := c.Request().Context(), http.NewResponseController(c.Response().Writer)
	if wait > 0 { // the deadlines of the server are those of other requests
		end := time.Now().Add(wait + s.cfg.RequestTimeout + writeGrace)
		_, _ = control.SetReadDeadline(end), control.SetWriteDeadline(end) // a recorder has none
	}
	to := callerOf(c).Name
	if to == "" {
		to = "http"
	}
	began := time.Now()
	lent, err := s.waiters.await(ctx, name, wait, func(ctx context.Context) ([]queue.Task, error) {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
		defer cancel()
		return s.cfg.Lender.ClaimAs(ctx, to, name, int(most), lease)
	})
	if err != nil {
		return fmt.Errorf("claiming tasks of queue %s: %w", name, err)
	}
	if len(lent) > 0 && time.Since(began) > recheckAfter { // the token may have been revoked
		err = s.authorize(c.Request(), auth.Work).err
	}
	if err == nil {
		err = sendLent(c, control, lent, lease)
	}
	if err != nil && len(lent) > 0 {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.RequestTimeout)
		defer cancel()
		if kept := s.cfg.Lender.Release(ctx, lent); kept != nil {
			err = errors.Join(err, kept)
		}
	}
	return err
}

// sendLent sends the answer to a claim. After an error, the worker does not have it.
func sendLent(c echo.Context, control *http.ResponseController, lent []queue.Task, lease time.Duration) error {
	answer := claimedJSON{Tasks: each(lent, func(t queue.Task) lentJSON {
		return lentJSON{t.ID, t.Kind, t.Key, t.Payload, t.Attempts, t.MaxAttempts, t.Created.UnixMilli()}
	})}
	if len(lent) > 0 {
		answer.Token, answer.Until = lent[0].Lease, lent[0].Claimed.Add(lease).UnixMilli()
	}
	body, err := json.Marshal(answer)
	if err == nil {
		err = c.Request().Context().Err()
	}
	if err != nil {
		return fmt.Errorf("answering a claim: %w", err)
	}
	c.Response().Header().Set(echo.HeaderContentLength, strconv.Itoa(len(body)))
	err = c.Blob(http.StatusOK, typeJSON, body)
	if err == nil {
		err = control.Flush()
	}
	if err != nil {
		return fmt.Errorf("sending the answer to a claim: %w", err)
	}
	return nil
}

type openJSON struct {
	Open int `json:"open"`
}

// finishTasks records how tasks of a lease ended.
func (s *Server) finishTasks(c echo.Context) error {
	name, err := s.queueOf(c)
	if err != nil {
		return err
	}
	var token string
	var ends []queue.End
	err = s.bodyOf(c, func(o strictjson.Object) {
		token = leaseToken(o)
		ends, _ = readEnds(o)
	}, "lease_token", "done", "failed", "back")
	if err != nil {
		return err
	}
	open, err := s.cfg.Lender.FinishLease(c.Request().Context(), name, token, ends)
	if err != nil {
		return fmt.Errorf("finishing %d tasks of queue %s: %w", len(ends), name, err)
	}
	return writeJSON(c, http.StatusOK, typeJSON, openJSON{open})
}

// readEnds reads how tasks ended, and returns the place of each in the body.
func readEnds(o strictjson.Object) (ends []queue.End, places []string) {
	add := func(place string, end queue.End) {
		if slices.ContainsFunc(ends, func(e queue.End) bool { return e.ID == end.ID }) {
			o.Addf(place, "is named twice")
		}
		ends, places = append(ends, end), append(places, place)
	}
	items := func(name string) (list []json.RawMessage) {
		if value, ok := o.Get(name); ok {
			list, _ = o.Reader.Array(name, value, "tasks", 0, maxLent)
		}
		return list
	}
	for i, item := range items("done") {
		place := strictjson.Item("done", i)
		add(place, queue.End{ID: taskID(o.Reader, place, item)})
	}
	for i, item := range items("back") {
		place := strictjson.Item("back", i)
		add(place, queue.End{ID: taskID(o.Reader, place, item), Err: queue.Later(0, errGivenBack)})
	}
	for i, item := range items("failed") {
		place := strictjson.Item("failed", i)
		if f, ok := o.Reader.Object(place, item); ok {
			end := readFailure(f)
			if value, ok := f.Need("id", "the id of a task"); ok {
				end.ID = taskID(o.Reader, o.Reader.At(place, "id"), value)
			}
			add(o.Reader.At(place, "id"), end)
		}
	}
	if len(ends) == 0 && len(o.Reader.Faults) == 0 {
		o.Addf("", "names no task: want done, failed or back")
	}
	return ends, places
}

var errGivenBack = errors.New("its worker gave it back")

// readFailure reads why a task failed, and when it is tried again.
func readFailure(f strictjson.Object) (end queue.End) {
	f.Only("id", "error", "retry_after", "permanent")
	const want = "why it failed, in words"
	if _, ok := f.Need("error", want); ok {
		if text, ok := f.String("error", want); ok {
			end.Err = errors.New(text)
			if text == "" {
				f.Addf("error", "is empty: want %s", want)
			}
		}
	}
	end.After = duration(f, "retry_after", time.Millisecond, maxAgain, 0)
	if permanent, _ := f.Bool("permanent"); permanent {
		if end.After > 0 {
			f.Addf("retry_after", "is given beside permanent: want one of the two")
		}
		end.Err = queue.Permanent(end.Err)
	}
	return end
}

// taskID reads the id of a task, a string or a number.
func taskID(r *strictjson.Reader, place string, value json.RawMessage) uint64 {
	text := string(value)
	if unquoted, ok := strings.CutPrefix(text, `"`); ok {
		text = strings.TrimSuffix(unquoted, `"`)
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(id, 10) != text {
		r.Addf(place, "want the id of a task, got %s", strictjson.Clip(string(value)))
	}
	return id
}

// extendLease makes a lease longer.
func (s *Server) extendLease(c echo.Context) error {
	name, err := s.queueOf(c)
	if err != nil {
		return err
	}
	var token string
	var lease time.Duration
	err = s.bodyOf(c, func(o strictjson.Object) {
		token = leaseToken(o)
		lease = duration(o, "lease", minLease, maxLease, defaultLease)
	}, "lease_token", "lease")
	if err != nil {
		return err
	}
	until, err := s.cfg.Lender.ExtendLease(c.Request().Context(), name, token, lease)
	if err != nil {
		return fmt.Errorf("extending a lease of queue %s: %w", name, err)
	}
	return writeJSON(c, http.StatusOK, typeJSON, struct {
		Until int64 `json:"lease_until_ms"`
	}{until.UnixMilli()})
}
