package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// bareAnswer has the fields that a page shows.
type bareAnswer struct {
	Contact struct {
		ID       uint64 `json:"id,string"`
		Username string `json:"username"`
	} `json:"contact"`
	Photos []barePhoto `json:"photos"`
}

type barePhoto struct {
	ID         uint64 `json:"id,string"`
	Title      string `json:"title"`
	DateUpload uint64 `json:"date_upload"`
}

// bareRead is a read by hand: the set, and the photos of its first contact by the statement that
// activityd sends. It proves nothing, and does not handle a server that does not answer.
func (b *bench) bareRead(ctx context.Context, viewer uint64, limit int) (a bareAnswer, err error) {
	set, err := b.client.ZRevRangeWithScores(ctx, index.UserKey(member.ID(viewer)), 0, stars-1).Result()
	if err != nil || len(set) == 0 {
		return a, fmt.Errorf("a set of %d: %w", len(set), err)
	}
	first, err := strconv.ParseUint(set[0].Member.(string), 10, 64)
	if err != nil {
		return a, err
	}
	statement := contacts.LookStatement(contacts.Viewer{ID: member.ID(viewer)}, member.ID(first), limit, uint64(set[0].Score))
	rows, err := b.bare.QueryContext(ctx, statement.Args...)
	if err != nil {
		return a, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id uint64
		var name string
		var p barePhoto
		var kind int
		if err := rows.Scan(&id, &name, &p.ID, &p.Title, &p.DateUpload, &kind); err != nil {
			return a, err
		}
		if kind == 0 {
			a.Contact.ID, a.Contact.Username, a.Photos = id, name, append(a.Photos, p)
		}
	}
	return a, rows.Err()
}

// openBare opens the servers that the environment names, for a handler of net/http in a process of its own, as activityd is.
func openBare(ctx context.Context) (*bench, error) {
	options, err := redis.ParseURL(os.Getenv("ACTIVITYD_REDIS_URL"))
	if err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	b := &bench{client: redis.NewClient(options)}
	if b.db, err = queue.OpenDB(os.Getenv("ACTIVITYD_MYSQL_DSN")); err != nil {
		return nil, err
	}
	return b, b.prepareBare(ctx)
}

func (b *bench) prepareBare(ctx context.Context) (err error) {
	b.bare, err = b.db.PrepareContext(ctx, contacts.LookStatement(contacts.Viewer{}, 0, 0, 0).Text)
	return err
}

// serveBare serves [bench.bareRead] by net/http until ctx ends, and logs its address as activityd does.
func serveBare(ctx context.Context, log io.Writer) error {
	b, err := openBare(ctx)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "{\"msg\":\"listening\",\"address\":%q}\n", listener.Addr())
	server := &http.Server{Handler: b}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (b *bench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := strings.CutPrefix(r.URL.Path, "/v1/users/")
	text, _, _ = strings.Cut(text, "/")
	viewer, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a, err := b.bareRead(r.Context(), viewer, limit)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := json.Marshal(a)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
