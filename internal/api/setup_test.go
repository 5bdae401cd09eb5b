package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/platforms"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// fakeReader explains by read, unless explain is set.
type fakeReader struct {
	read    func(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
	explain func(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

func (f *fakeReader) Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	return f.read(ctx, v, limit)
}

func (f *fakeReader) Explain(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	if f.explain != nil {
		return f.explain(ctx, v, limit)
	}
	a, err := f.read(ctx, v, limit)
	a.Trace.Proof = cmp.Or(a.Trace.Proof, recent.ByWalk)
	a.Trace.Candidates = append([]recent.Candidate{}, a.Trace.Candidates...)
	return a, err
}

// fakeEnqueuer remembers every batch, and gives ids from 1 on unless enqueue
// says otherwise.
type fakeEnqueuer struct {
	enqueue func(ctx context.Context, batch []queue.New) ([]uint64, error)

	mu      sync.Mutex
	batches [][]queue.New
	once    map[string]onceBatch
}

func (f *fakeEnqueuer) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	f.mu.Lock()
	f.batches = append(f.batches, batch)
	f.mu.Unlock()
	if f.enqueue != nil {
		return f.enqueue(ctx, batch)
	}
	ids := make([]uint64, len(batch))
	for i := range ids {
		ids[i] = uint64(i + 1)
	}
	return ids, nil
}

// EnqueueOnce keeps keys for good.
func (f *fakeEnqueuer) EnqueueOnce(ctx context.Context, key string, batch []queue.New) (ids []uint64, replayed bool, err error) {
	f.mu.Lock()
	before, known := f.once[key]
	f.mu.Unlock()
	if known && !reflect.DeepEqual(before.batch, batch) {
		return nil, false, fmt.Errorf("fake: %w", queue.ErrKeyReused)
	}
	if known {
		return before.ids, true, nil
	}
	ids, err = f.Enqueue(ctx, batch)
	if err == nil {
		f.mu.Lock()
		f.once[key] = onceBatch{batch, ids}
		f.mu.Unlock()
	}
	return ids, false, err
}

type onceBatch struct {
	batch []queue.New
	ids   []uint64
}

func (f *fakeEnqueuer) calls() [][]queue.New {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.batches
}

// logBuffer collects the log, a JSON object a line.
type logBuffer struct{ logtest.Log }

// lines are the lines of the log.
func (l *logBuffer) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	for text := range strings.Lines(l.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("the log's line %s: %v", text, err)
		}
		all = append(all, line)
	}
	return all
}

// last is the last line of the log that is no summary.
func (l *logBuffer) last(t *testing.T) map[string]any {
	t.Helper()
	all := slices.DeleteFunc(l.lines(t), func(line map[string]any) bool { return line["msg"] == "requests refused" })
	if len(all) == 0 {
		t.Fatal("nothing was logged")
	}
	return all[len(all)-1]
}

// fakePush keeps all that it is given, of members below noMember.
type fakePush struct {
	mu       sync.Mutex
	devices  []push.Device
	lastID   uint64 // of a device that was registered
	settings map[member.ID]push.Settings
	mutes    map[member.ID][]push.Mute
	err      error // of all methods
}

// noMember and all above it are no members.
const noMember = 1_000_000

func (f *fakePush) begin(id member.ID) (end func(), err error) {
	f.mu.Lock()
	if err = f.err; err == nil && id >= noMember {
		err = fmt.Errorf("fake: %w", contacts.ErrNoMember)
	}
	return f.mu.Unlock, err
}

func (f *fakePush) Register(_ context.Context, id member.ID, platform push.Platform, a push.Address, language string) (push.Device, error) {
	end, err := f.begin(id)
	defer end()
	if err != nil {
		return push.Device{}, err
	}
	f.lastID++
	d := push.Device{ID: f.lastID, Member: id, Platform: platform, Address: a, Registered: time.Unix(1795300000, 0), Language: language}
	f.devices = append(f.devices, d)
	return d, nil
}

func (f *fakePush) Devices(_ context.Context, id member.ID) ([]push.Device, error) {
	end, err := f.begin(id)
	defer end()
	return slices.DeleteFunc(slices.Clone(f.devices), func(d push.Device) bool { return d.Member != id }), err
}

func (f *fakePush) Remove(_ context.Context, id member.ID, device uint64) (found bool, err error) {
	end, _ := f.begin(id)
	defer end()
	before := len(f.devices)
	f.devices = slices.DeleteFunc(f.devices, func(d push.Device) bool { return d.Member == id && d.ID == device })
	return len(f.devices) < before, f.err
}

func (f *fakePush) Settings(_ context.Context, id member.ID) (push.Settings, error) {
	end, err := f.begin(id)
	defer end()
	return f.settings[id], err
}

func (f *fakePush) SetSettings(_ context.Context, id member.ID, s push.Settings) error {
	end, err := f.begin(id)
	defer end()
	if err == nil {
		f.settings[id] = s
	}
	return err
}

func (f *fakePush) Mutes(_ context.Context, id member.ID) ([]push.Mute, error) {
	end, err := f.begin(id)
	defer end()
	return f.mutes[id], err
}

func (f *fakePush) Mute(_ context.Context, id member.ID, object string, until time.Time) error {
	end, err := f.begin(id)
	defer end()
	if err == nil {
		f.mutes[id] = append(f.mutes[id], push.Mute{Object: object, Until: until})
	}
	return err
}

func (f *fakePush) Unmute(_ context.Context, id member.ID, object string) (found bool, err error) {
	end, _ := f.begin(id)
	defer end()
	before := len(f.mutes[id])
	f.mutes[id] = slices.DeleteFunc(f.mutes[id], func(m push.Mute) bool { return m.Object == object })
	return len(f.mutes[id]) < before, f.err
}

// stored is all that it was given.
func (f *fakePush) stored() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.devices) + len(f.settings)
	for _, mutes := range f.mutes {
		n += len(mutes)
	}
	return n
}

// checkAddress takes addresses without "bad".
func checkAddress(_ context.Context, _ push.Platform, a push.Address) error {
	var text json.RawMessage
	if err := a.Decode(&text); err != nil || strings.Contains(string(text), "bad") {
		return errors.New("is bad")
	}
	return nil
}

type bundle struct {
	server   *api.Server
	reader   *fakeReader
	enqueuer *fakeEnqueuer
	push     *fakePush
	health   api.Health
	log      *logBuffer
}

// setup builds a server on fakes, whose functions a test may replace.
func setup(t testing.TB, configure ...func(*api.Config)) *bundle {
	t.Helper()
	b := &bundle{
		reader: &fakeReader{read: func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
			return recent.Answer{Source: recent.FromIndex}, nil
		}},
		enqueuer: &fakeEnqueuer{once: map[string]onceBatch{}},
		push:     &fakePush{settings: map[member.ID]push.Settings{}, mutes: map[member.ID][]push.Mute{}},
		health:   healthy(),
		log:      &logBuffer{},
	}
	cfg := api.Config{
		Reader:   b.reader,
		Enqueuer: b.enqueuer,
		Push:     b.push, Platforms: platforms.All(), CheckAddress: checkAddress,
		Health: func() api.Health { return b.health },
		Logger: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range configure {
		f(&cfg)
	}
	b.server = api.New(cfg)
	return b
}

// do answers a request and holds the response against the OpenAPI document.
func (b *bundle) do(t testing.TB, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	b.server.Handler().ServeHTTP(w, r)
	conforms(t, r, w)
	return w
}

// newRequest makes a request from and for the machine that it is made on.
func newRequest(ctx context.Context, method, target string, body io.Reader) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, target, body)
	r.Host, r.RemoteAddr = "localhost:8080", "127.0.0.1:50000"
	return r
}

func (b *bundle) get(t testing.TB, target string) *httptest.ResponseRecorder {
	t.Helper()
	return b.do(t, newRequest(t.Context(), http.MethodGet, target, http.NoBody))
}

func (b *bundle) post(t testing.TB, body string) *httptest.ResponseRecorder {
	t.Helper()
	return b.do(t, postTasks(t.Context(), strings.NewReader(body)))
}

func postTasks(ctx context.Context, body io.Reader) *http.Request {
	r := newRequest(ctx, http.MethodPost, "/v1/tasks", body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// send sends a body as JSON.
func (b *bundle) send(t testing.TB, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	return b.do(t, newJSON(t.Context(), method, target, body))
}

func newJSON(ctx context.Context, method, target, body string) *http.Request {
	r := newRequest(ctx, method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// problem is a problem as clients know it.
type problem struct {
	Type   string
	Title  string
	Status int
	Detail string
	Field  string
	Errors []struct{ Field, Detail string }
}

// fields are the fields at fault, in order.
func (p problem) fields() []string {
	var fields []string
	for _, e := range p.Errors {
		fields = append(fields, e.Field)
	}
	return fields
}

// wantProblem checks status, content type and problem type of a response.
func wantProblem(t testing.TB, w *httptest.ResponseRecorder, status int, slug string) problem {
	t.Helper()
	var p problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("status %d, not a problem: %v\n%s", w.Code, err, w.Body)
	}
	if w.Code != status || p.Status != status || p.Type != "/problems/"+slug {
		t.Fatalf("status %d, body %s\nwant %d %s", w.Code, w.Body, status, slug)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("Content-Type = %q", ct)
	}
	return p
}
