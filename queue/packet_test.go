package queue_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// A server that takes packets of 1 MiB is enough for the largest batches, and the check says where a server takes less.
func TestSmallPackets(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	if err := server.CreateDatabase(t.Context(), "packets"); err != nil { // without tables
		t.Fatal(err)
	}
	limit := func(bytes int) *sql.DB {
		if _, err := open(t, server.DSN("packets")).ExecContext(t.Context(), fmt.Sprint("SET GLOBAL max_allowed_packet = ", bytes)); err != nil {
			t.Fatal(err)
		}
		return open(t, server.DSN("packets")) // connections keep the limit with which they began
	}
	found := func(db *sql.DB) bool {
		list, err := schema.Check(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(fmt.Sprint(list), "max_allowed_packet")
	}
	db := limit(1 << 20)
	if err := queue.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "large", Ordered: true}}})
	large := strings.Repeat("x", queue.MaxPayload-2)
	for _, keyed := range []bool{false, true} {
		batch := make([]queue.New, 200)
		for i := range batch {
			batch[i] = queue.New{Kind: "large", Key: uint64(i + 1), Args: large}
			if keyed {
				batch[i].DedupeKey = fmt.Sprint("large ", i)
			}
		}
		if _, err := q.Enqueue(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		list, err := q.Claim(t.Context(), queue.DefaultQueue, len(batch), time.Minute)
		if err != nil || len(list) != len(batch) {
			t.Fatalf("%d tasks, %v", len(list), err)
		}
		results := make([]queue.Result, len(list))
		for i, task := range list {
			results[i] = queue.Result{Task: task}
			if !keyed {
				results[i].Next = []queue.New{{Kind: "large", Key: task.Key, Args: large, Queue: "next"}}
			}
		}
		if lost, err := q.Finish(t.Context(), results); err != nil || lost > 0 {
			t.Fatalf("%d lost, %v", lost, err)
		}
	}
	if found(db) {
		t.Error("the check objects to 1 MiB")
	}
	if !found(limit(512 << 10)) {
		t.Error("the check does not object to 512 KiB")
	}
}
