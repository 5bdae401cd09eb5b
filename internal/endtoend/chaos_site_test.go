//go:build unix

package endtoend_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/site"
)

// tally counts the site's attempts by outcome.
type tally struct {
	committed atomic.Int64 // changes
	byHTTP    atomic.Int64 // whose tasks were enqueued through the API
	failed    atomic.Int64 // changes that were not committed
	unknown   atomic.Int64 // changes whose outcome only a later look told
	reads     atomic.Int64
	refused   atomic.Int64 // reads

	mu    sync.Mutex
	acked []uint64 // ids of the changes that were committed
}

func (t *tally) ack(id uint64) {
	t.committed.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acked = append(t.acked, id)
}

// accountant is a site that keeps a ledger. For each of its changes it knows whether the server committed it,
// whatever happened to the server at that moment. It makes one change at a time.
type accountant struct {
	*site.MySQL // for changes that emit nothing, or not always, or several tasks
	ledger      ledger
	api         *program
	client      *http.Client
	tally       *tally
	rnd         *rand.Rand
	next        uint64 // id of a change
}

func (f *fleet) accountant(number uint64) *accountant {
	return &accountant{
		MySQL: f.site, ledger: f.ledger, api: f.api, client: f.http, tally: &f.tally,
		rnd: rand.New(rand.NewPCG(f.seed, 200+number)), next: number << 32,
	}
}

// SetContact implements [site.Changer].
func (a *accountant) SetContact(ctx context.Context, user, contact member.ID, g site.Grant) error {
	return a.make(ctx, task{site.EventAddContact, user.String(), contact.String()}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO contacts (user_id, contact_id, is_friend, is_family) VALUES (?, ?, ?, ?)"+
			" ON DUPLICATE KEY UPDATE is_friend = VALUES(is_friend), is_family = VALUES(is_family)", user, contact, g.Friend, g.Family)
		return err
	})
}

// RemoveContact implements [site.Changer].
func (a *accountant) RemoveContact(ctx context.Context, user, contact member.ID) error {
	return a.make(ctx, task{site.EventRemoveContact, user.String(), contact.String()}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM contacts WHERE user_id = ? AND contact_id = ?", user, contact)
		return err
	})
}

// Upload implements [site.Changer].
func (a *accountant) Upload(ctx context.Context, p site.Photo) (id uint64, err error) {
	if p.Visibility == contacts.Private { // it emits nothing
		return a.MySQL.Upload(ctx, p)
	}
	err = a.make(ctx, task{Type: site.EventUpload, User: p.Owner.String()}, func(ctx context.Context, tx *sql.Tx) error {
		added, err := tx.ExecContext(ctx, "INSERT INTO photos (owner_id, title, visibility, date_upload) VALUES (?, ?, ?, ?)",
			p.Owner, p.Title, string(p.Visibility), p.DateUpload)
		if err != nil {
			return err
		}
		last, err := added.LastInsertId()
		if err != nil {
			return err
		}
		id = uint64(last)
		_, err = tx.ExecContext(ctx, "UPDATE users SET last_upload = GREATEST(COALESCE(last_upload, 0), ?) WHERE id = ?", p.DateUpload, p.Owner)
		return err
	})
	return id, err
}

// make makes a change; an error says that the change was not made.
func (a *accountant) make(ctx context.Context, about task, do func(context.Context, *sql.Tx) error) error {
	a.next++
	c := change{id: a.next, do: do, task: about, byHTTP: a.rnd.IntN(5) == 0}
	err := a.commitOrKnow(ctx, c)
	if err != nil {
		a.tally.failed.Add(1)
		return err
	}
	a.tally.ack(c.id)
	if c.byHTTP {
		return a.tell(ctx, c)
	}
	return nil
}

// commitOrKnow commits a change. A server that went away in the middle has either
// committed it or not, and says so when it is back.
func (a *accountant) commitOrKnow(ctx context.Context, c change) error {
	err := retry(ctx, mysql.IsRetryable, func() error { return a.ledger.commit(ctx, c) })
	err = mysql.Translate(ctx, "the site's change", err)
	if !errors.Is(err, mysql.ErrUnavailable) {
		return err
	}
	var committed bool
	failed := retry(ctx, always, func() (err error) {
		committed, err = a.ledger.has(ctx, c.id)
		return err
	})
	if failed != nil {
		return failed
	}
	if committed {
		a.tally.unknown.Add(1)
		return nil
	}
	return err
}

// tell enqueues the task of a committed change through the API, as often as it
// takes, and notes its id.
func (a *accountant) tell(ctx context.Context, c change) error {
	var taskID uint64
	err := retry(ctx, always, func() (err error) {
		taskID, err = a.post(ctx, c)
		return err
	})
	if err != nil {
		return err
	}
	a.tally.byHTTP.Add(1)
	return retry(ctx, always, func() error {
		_, err := a.ledger.db.ExecContext(ctx, "UPDATE changes SET task_id = ? WHERE id = ?", taskID, c.id)
		return err
	})
}

func (a *accountant) post(ctx context.Context, c change) (taskID uint64, err error) {
	body, err := json.Marshal(c.task)
	if err != nil {
		return 0, err
	}
	address, err := a.api.address()
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/tasks", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", fmt.Sprint("change-", c.id))
	var answer struct {
		Tasks []struct {
			ID uint64 `json:"id,string"`
		} `json:"tasks"`
	}
	if err := exchange(a.client, request, http.StatusAccepted, &answer); err != nil {
		return 0, err
	}
	if len(answer.Tasks) != 1 {
		return 0, fmt.Errorf("one task was enqueued as %d", len(answer.Tasks))
	}
	return answer.Tasks[0].ID, nil
}

// statusError is an answer with another status than was wanted.
type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.code, e.body) }

// exchange sends a request and reads the JSON of its answer.
func exchange(client *http.Client, request *http.Request, want int, into any) error {
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != want {
		return &statusError{response.StatusCode, string(body)}
	}
	return json.Unmarshal(body, into)
}

func always(error) bool { return true }

// retry repeats do while its error may pass. It gives up with ctx, or after a time in which every server
// should have come back.
func retry(ctx context.Context, mayPass func(error) bool, do func() error) error {
	const most = 60 * time.Second
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(most); ; {
		err := do()
		switch {
		case err == nil || !mayPass(err):
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("still so after %v: %w", most, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
