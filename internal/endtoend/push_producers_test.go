//go:build unix

package endtoend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
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
	acked      bool      // that succeeded
}

// args returns the event as a producer writes it.
func (e *sentEvent) args(s *pushSite) map[string]any {
	args := map[string]any{
		"id": e.id, "type": e.kind, "body": "chaos", "urgent": e.urgent, "collapse": e.collapse,
	}
	if e.title != "" {
		args["title"] = e.title
	}
	if e.photo {
		args["object"] = fmt.Sprint("photo:", s.photos[e.actor].id)
	}
	if e.recipients != nil {
		args["recipients"] = e.recipients
	}
	return args
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

	way  string
	rnd  *rand.Rand
	http *http.Client
	api  func() *program // a program that may answer
	next int
}

// produce makes a few events and hands them in until they are acknowledged.
func (p *pushProducer) produce(ctx context.Context) error {
	batch := make([]*sentEvent, 1+p.rnd.IntN(3))
	p.mu.Lock()
	for i := range batch {
		batch[i] = p.event()
		p.sent[batch[i].id] = batch[i]
	}
	p.mu.Unlock()
	handIn := map[string]func(context.Context, []*sentEvent) error{byHTTP: p.post, byStream: p.add, byRow: p.insert}[p.way]
	err := retry(ctx, always, func() error { return handIn(ctx, batch) })
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, e := range batch {
			e.acked = true
		}
	}
	return err
}

func (p *pushProducer) event() *sentEvent {
	p.next++
	e := &sentEvent{
		id: fmt.Sprintf("by-%s-%d", p.way, p.next), way: p.way, actor: member.ID(1 + p.rnd.IntN(pushActors)), began: time.Now(),
		kind: []string{"upload", "comment", restlessType}[p.rnd.IntN(3)], photo: p.rnd.IntN(2) == 0, urgent: p.rnd.IntN(4) == 0,
	}
	if p.way == byHTTP || !e.photo && p.rnd.IntN(2) == 0 {
		e.title = "title of " + e.id
	}
	if p.rnd.IntN(10) < 7 || p.way == byHTTP { // the rest are for the followers
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

// insert adds rows to the queue, each in a transaction with a change of the actor.
func (p *pushProducer) insert(ctx context.Context, batch []*sentEvent) error {
	for _, e := range batch {
		text, err := json.Marshal(e.args(p.pushSite))
		if err != nil {
			return err
		}
		tx, err := p.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE users SET last_upload = ? WHERE id = ?", start+p.next, e.actor)
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO tasks (type, subject, args) VALUES ('notify', ?, ?)", e.actor, string(text))
		}
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// add adds to the stream.
func (p *pushProducer) add(ctx context.Context, batch []*sentEvent) error {
	for _, e := range batch {
		text, err := json.Marshal(map[string]any{"type": "notify", "user_id": e.actor.String(), "event": e.args(p.pushSite)})
		if err != nil {
			return err
		}
		if err := p.producer.XAdd(ctx, &redis.XAddArgs{Stream: stream.Key, Values: []any{stream.Field, text}}).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (p *pushProducer) post(ctx context.Context, batch []*sentEvent) error {
	var events []map[string]any
	for _, e := range batch {
		args := e.args(p.pushSite)
		args["actor_id"] = e.actor.String()
		events = append(events, args)
	}
	var answer any
	return post(ctx, p.http, p.api(), "/v1/events", "", map[string]any{"events": events}, &answer)
}
