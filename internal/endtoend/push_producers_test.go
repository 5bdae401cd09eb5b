//go:build unix

package endtoend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/stream"
)

// The ways in.
const (
	byRow    = "rows"
	byStream = "stream"
	byHTTP   = "HTTP"
)

// sentEvent is an event that a producer made.
type sentEvent struct {
	id         string
	way        string
	kind       string
	actor      member.ID
	photo      bool // it is about the photo of the actor
	urgent     bool
	recipients []member.ID // nil: the followers
	title      string      // "": the username of the actor
	collapse   string
	began      time.Time // when it was first handed in
	acked      time.Time // when that succeeded; zero: not yet
}

// eventArgs is an event as a producer writes it.
type eventArgs struct {
	ID         string   `json:"id,omitempty"`
	Type       string   `json:"type"`
	Actor      string   `json:"actor_id,omitempty"` // by HTTP
	Object     string   `json:"object,omitempty"`
	Recipients []string `json:"recipients,omitempty"`
	Title      string   `json:"title,omitempty"`
	Body       string   `json:"body,omitempty"`
	Urgent     bool     `json:"urgent,omitempty"`
	Collapse   string   `json:"collapse"`
}

func (e *sentEvent) args(s *pushSite) eventArgs {
	a := eventArgs{ID: e.id, Type: e.kind, Title: e.title, Body: "chaos", Urgent: e.urgent, Collapse: e.collapse}
	if e.photo {
		a.Object = fmt.Sprint("photo:", s.photos[e.actor].id)
	}
	for _, id := range e.recipients {
		a.Recipients = append(a.Recipients, id.String())
	}
	return a
}

// audience returns the recipients that the event is for.
func (e *sentEvent) audience(s *pushSite) (all []*recipient) {
	for _, r := range s.recipients {
		if e.recipients == nil && r.follows[e.actor] || slices.Contains(e.recipients, r.id) {
			all = append(all, r)
		}
	}
	return all
}

// pushProducer makes events, and hands them in by its way.
type pushProducer struct {
	*pushSite
	way    string
	rnd    *rand.Rand
	redis  *redis.Client
	http   *http.Client
	api    func() *program // a program that may answer
	prefix string
	next   int
}

// produce makes a few events and hands them in until they are acknowledged. An entry of the
// stream is, in the end, when it was moved into the queue.
func (p *pushProducer) produce(ctx context.Context) error {
	batch := make([]*sentEvent, 1+p.rnd.IntN(3))
	for i := range batch {
		batch[i] = p.event()
	}
	var err error
	switch p.way {
	case byHTTP:
		err = p.begin(batch, func() error { return retry(ctx, always, func() error { return p.post(ctx, batch) }) })
	case byStream:
		err = p.begin(batch, func() error { return retry(ctx, always, func() error { return p.add(ctx, batch) }) })
	default:
		for _, e := range batch {
			if p.rnd.IntN(4) == 0 {
				return p.insertWithoutID(ctx, e)
			}
			err = p.begin([]*sentEvent{e}, func() error {
				return retry(ctx, always, func() error { _, err := p.insert(ctx, e); return err })
			})
		}
	}
	return err
}

// begin makes events known, hands them in, and notes that they were acknowledged.
func (p *pushProducer) begin(batch []*sentEvent, handIn func() error) error {
	p.mu.Lock()
	for _, e := range batch {
		e.began = time.Now()
		p.sent[e.id] = e
	}
	p.mu.Unlock()
	err := handIn()
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, e := range batch {
			e.acked = time.Now()
		}
	}
	return err
}

func (p *pushProducer) event() *sentEvent {
	p.next++
	e := &sentEvent{
		id: fmt.Sprintf("%s-%d", p.prefix, p.next), way: p.way, actor: member.ID(1 + p.rnd.IntN(pushActors)),
		kind: []string{"upload", "comment", restlessType}[p.rnd.IntN(3)], photo: p.rnd.IntN(2) == 0, urgent: p.rnd.IntN(8) == 0,
	}
	if p.way == byHTTP || !e.photo && p.rnd.IntN(2) == 0 {
		e.title = "title of " + e.id
	}
	if p.rnd.IntN(10) < 7 || p.way == byHTTP { // the followers are the remaining events
		for range 1 + p.rnd.IntN(6) {
			if id := p.recipients[p.rnd.IntN(len(p.recipients))].id; !slices.Contains(e.recipients, id) {
				e.recipients = append(e.recipients, id)
			}
		}
	}
	if p.rnd.IntN(8) == 0 {
		e.collapse = "c" + strconv.Itoa(p.rnd.IntN(3))
	}
	return e
}

// insert adds a row to the queue, in a transaction with a change of the actor.
func (p *pushProducer) insert(ctx context.Context, e *sentEvent) (id int64, err error) {
	text, err := json.Marshal(e.args(p.pushSite))
	if err != nil {
		return 0, err
	}
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, "UPDATE users SET last_upload = ? WHERE id = ?", start+p.next, e.actor)
	if err == nil {
		result, err = tx.ExecContext(ctx, "INSERT INTO tasks (type, subject, args) VALUES ('notify', ?, ?)", e.actor, string(text))
	}
	if err != nil {
		_ = tx.Rollback() // err is the error to return
		return 0, err
	}
	if id, err = result.LastInsertId(); err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	return id, tx.Commit()
}

// insertWithoutID adds a row whose event is called by its task. It is not tried again, as that
// would be another event.
func (p *pushProducer) insertWithoutID(ctx context.Context, e *sentEvent) error {
	e.id, e.began = "", time.Now()
	id, err := p.insert(ctx, e)
	if err != nil {
		return ctx.Err() // who did not get an answer knows nothing of it
	}
	e.id, e.acked = fmt.Sprint("task-", id), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[e.id] = e
	return nil
}

func (p *pushProducer) add(ctx context.Context, batch []*sentEvent) error {
	for _, e := range batch {
		text, err := json.Marshal(map[string]any{"type": "notify", "user_id": e.actor.String(), "event": e.args(p.pushSite)})
		if err != nil {
			return err
		}
		if err := p.redis.XAdd(ctx, &redis.XAddArgs{Stream: stream.Key, Values: []any{stream.Field, text}}).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pushProducer) post(ctx context.Context, batch []*sentEvent) error {
	var events []eventArgs
	for _, e := range batch {
		a := e.args(p.pushSite)
		a.Actor = e.actor.String()
		events = append(events, a)
	}
	body, err := json.Marshal(map[string]any{"events": events})
	if err != nil {
		return err
	}
	address, err := p.api().address()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/events", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	var answer any
	return exchange(p.http, request, http.StatusAccepted, &answer)
}

// pressure lets producers pause while much waits.
type pressure struct{ waiting atomic.Int64 }

// maxWaitingOfPush keeps the work busy, and its end near.
const maxWaitingOfPush = 1000

func (p *pressure) watch(ctx context.Context, s *pushSite) error {
	var n int64
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&n); err == nil {
		p.waiting.Store(n)
	}
	return ctx.Err()
}
