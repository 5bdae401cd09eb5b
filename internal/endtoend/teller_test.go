//go:build unix

package endtoend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/site"
)

// teller is a site that remembers the uploads that were acknowledged, and tells of some by HTTP, too.
type teller struct {
	*site.MySQL

	fleet *fleet

	uploaded atomic.Int64

	mu      sync.Mutex
	uploads map[uint64]member.ID // acknowledged photos that nobody deleted, with their owners
	told    []uint64             // tasks that the API acknowledged
}

// Upload implements [site.Changer].
func (s *teller) Upload(ctx context.Context, p site.Photo) (id uint64, err error) {
	if id, err = s.MySQL.Upload(ctx, p); err != nil {
		return id, err
	}
	s.mu.Lock()
	s.uploads[id] = p.Owner
	s.mu.Unlock()
	s.uploaded.Add(1)
	if id%5 > 0 || p.Visibility == contacts.Private {
		return id, nil
	}
	return id, retry(ctx, always, func() error { return s.tell(ctx, id, p.Owner) })
}

// tell enqueues a task of an upload. A repeated call enqueues nothing more.
func (s *teller) tell(ctx context.Context, photo uint64, owner member.ID) error {
	var answer struct {
		Tasks []struct {
			ID uint64 `json:"id,string"`
		} `json:"tasks"`
	}
	task := map[string]string{"type": site.EventUpload, "user_id": owner.String()}
	err := post(ctx, s.fleet.http, s.fleet.api, "/v1/tasks", fmt.Sprint("upload-", photo), task, &answer)
	if err == nil && len(answer.Tasks) != 1 {
		err = fmt.Errorf("one task was enqueued as %d", len(answer.Tasks))
	}
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.told = append(s.told, answer.Tasks[0].ID)
	}
	return err
}

// DeletePhoto implements [site.Changer]. It is called by the goroutine that uploaded the photo.
func (s *teller) DeletePhoto(ctx context.Context, id uint64) error {
	s.mu.Lock()
	delete(s.uploads, id)
	s.mu.Unlock()
	return s.MySQL.DeletePhoto(ctx, id)
}

// check: the database has the photos and the tasks that were acknowledged.
func (s *teller) check(t *testing.T, l ledger) {
	t.Helper()
	has := func(query string) map[uint64]bool {
		ids, err := mysql.Select(t.Context(), l.db, mysql.Column[uint64], query)
		must(t, err)
		all := make(map[uint64]bool)
		for _, id := range ids {
			all[id] = true
		}
		return all
	}
	photos, tasks := has("SELECT id FROM photos"), has("SELECT task_id FROM task_events WHERE event = 'committed'")
	for id, owner := range s.uploads {
		if !photos[id] && !l.isGone(t, owner) { // a member who leaves takes the photos along
			t.Errorf("LOST: photo %d of member %s was acknowledged", id, owner)
		}
	}
	for _, id := range s.told {
		if !tasks[id] {
			t.Errorf("LOST: task %d was acknowledged", id)
		}
	}
	if len(s.uploads) == 0 || len(s.told) == 0 {
		t.Error("nothing was uploaded, or told by HTTP")
	}
}

// get asks the API of a program.
func get(ctx context.Context, client *http.Client, from *program, path string, answer any) error {
	return exchange(ctx, client, from, http.MethodGet, path, nil, nil, http.StatusOK, answer)
}

// post sends JSON to the API of a program.
func post(ctx context.Context, client *http.Client, to *program, path, key string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	return exchange(ctx, client, to, http.MethodPost, path, header, text, http.StatusAccepted, answer)
}

// statusError is an answer with another status than was wanted.
type statusError struct {
	code int
	body string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.code, e.body) }

// exchange sends a request and reads the JSON of its answer.
func exchange(ctx context.Context, client *http.Client, with *program, method, path string, header http.Header, text []byte, want int, into any) error {
	address, err := with.address()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	maps.Copy(request.Header, header)
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
