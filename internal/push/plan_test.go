package push_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// TestPropertyPlan: in random small worlds, an event is for those devices that its plan says, not for the
// others and for the reasons that the plan says; and a plan stores nothing.
func TestPropertyPlan(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	store := push.NewMySQL(db)
	decided := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newLookWorld(db, store)
		w.fill(t)
		exec(t, db, "DELETE FROM tasks")
		exec(t, db, "DELETE FROM task_leases")
		e := push.Event{
			ID: "planned", Type: "upload", Actor: anyone.Draw(t, "actor"), Object: anyObject.Draw(t, "object"), Followers: rapid.Bool().Draw(t, "followers"),
			Urgent: rapid.Bool().Draw(t, "urgent"), ExpiresIn: rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "expires"),
		}
		e.Silent = rapid.IntRange(0, 4).Draw(t, "silent") == 0
		if !e.Followers {
			e.Recipients = rapid.SliceOfNDistinct(anyone, 1, 4, rapid.ID).Draw(t, "recipients")
		}
		mustShow := map[push.Platform]bool{push.WebPush: true}
		planner := push.Planner{Store: w.store, Followers: contacts.NewMySQL(db), MustShow: mustShow}
		before := countRows(t, db)
		plan, err := planner.Plan(t.Context(), e)
		must(t, err)
		if after := countRows(t, db); plan.Known || plan.More || after != before {
			t.Errorf("planned %+v; the tables have %s rows, before %s", plan, after, before)
		}
		planned := map[string]string{}
		for _, d := range plan.Devices {
			planned[fmt.Sprintf("%v/%d", d.Device.Member, d.Device.ID)] = decisionOf(d.Decision)
			decided[decisionOf(d.Decision)]++
		}

		n, err := push.NewNotify(e)
		must(t, err)
		_, err = q.Enqueue(t.Context(), []queue.New{n})
		must(t, err)
		claim, err := q.Claim(t.Context(), n.Queue, 1, time.Minute)
		must(t, err)
		outcomes := push.NewTargeting(push.TargetingOptions{Store: w.store, Followers: contacts.NewMySQL(db), MustShow: mustShow}).Handle(t.Context(), claim)
		must(t, outcomes[0].Err)
		done := map[string]string{}
		for _, next := range outcomes[0].Next {
			var d push.Delivery
			must(t, json.Unmarshal(next.Payload, &d))
			for _, to := range d.To {
				done[fmt.Sprintf("%v/%d", to.Member, to.Device)] = map[bool]string{true: "wait", false: "send"}[next.Delay > 0]
			}
		}
		is, err := w.store.EventByID(t.Context(), "planned")
		must(t, err)
		for page, err := range w.store.Fates(t.Context(), is.Number, 0) {
			must(t, err)
			for _, r := range page {
				if r.State == push.StateSkipped {
					done[fmt.Sprintf("%v/%d", r.Member, r.Device)] = r.Reason
				}
			}
		}
		if diff := gocmp.Diff(planned, done); diff != "" {
			t.Errorf("event %+v (-planned +done):\n%s", e, diff)
		}
		if again, err := planner.Plan(t.Context(), e); err != nil || !again.Known {
			t.Errorf("planned again: %+v, %v", again, err)
		}
	})
	t.Logf("decided: %v", decided)
	if len(decided) < 4 {
		t.Errorf("only these were decided: %v", decided)
	}
}

func decisionOf(d push.Decision) string {
	if !d.NotBefore.IsZero() {
		return "wait"
	}
	return cmp.Or(string(d.Skip), "send")
}

// countRows is how many rows the tables of a push have.
func countRows(t tester, db *sql.DB) string {
	var counts []string
	for _, table := range []string{"tasks", "parked_tasks", "push_events", "push_receipts", "push_runs", "push_devices"} {
		var n int
		must(t, db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM "+table).Scan(&n))
		counts = append(counts, fmt.Sprint(n))
	}
	return strings.Join(counts, " ")
}

// A page of followers is planned, and it is said that there are more.
func TestAPlanIsBounded(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	for id := 2; id <= 9; id++ {
		exec(t, db, "INSERT INTO users (id, username) VALUES (?, 'u')", id+100)
		exec(t, db, "INSERT INTO contacts (user_id, contact_id) VALUES (?, 1)", id+100)
	}
	planner := push.Planner{Store: store, Followers: contacts.NewMySQL(db), PageSize: 5}
	register(t, store, 102, token(1))
	plan, err := planner.Plan(t.Context(), push.Event{ID: "e", Type: "a", Actor: 1, Followers: true})
	if err != nil || plan.Recipients != 5 || !plan.More || plan.Deviceless != 4 || len(plan.Devices) != 1 {
		t.Errorf("%+v, %v", plan, err)
	}
	plan, err = planner.Plan(t.Context(), push.Event{ID: "e", Type: "a", Actor: 1, Recipients: []member.ID{102, 103}})
	if err != nil || plan.Recipients != 2 || plan.More || len(plan.Devices) != 2 || plan.Devices[1].Skip != push.NoDevice {
		t.Errorf("%+v, %v", plan, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := planner.Plan(canceled, push.Event{ID: "e", Type: "a", Actor: 1, Followers: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if !slices.IsSortedFunc(plan.Devices, func(a, b push.Planned) int { return cmp.Compare(a.Device.Member, b.Device.Member) }) {
		t.Errorf("%+v", plan.Devices)
	}
}
