package tasks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// slowSets is an index whose Add takes a second.
type slowSets struct{ tasks.Index }

func (slowSets) Add(context.Context, []index.Addition) ([]member.ID, map[member.ID]error) {
	deaf(time.Second)
	return nil, nil
}

// The end of a fan-out counts how many followers it had, and how long they waited
// from the upload's task on: in the queue, too, and for all parts of the chain.
func TestTheLagOfAFanOutIsCounted(t *testing.T) {
	for name, test := range map[string]struct {
		followers int
		seconds   float64
	}{
		"no follower": {0, 5}, // with nothing to write
		"one part":    {1, 6},
		"four parts":  {6, 8}, // the last is empty
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := metricstest.Gather(t)
				s := &site.Memory{Store: contactstest.NewMemory()}
				must(t, s.AddMember(t.Context(), star, "star"))
				for i := range test.followers {
					must(t, s.AddMember(t.Context(), viewer+id(i), "follower"))
					must(t, s.SetContact(t.Context(), viewer+id(i), star, site.Grant{}))
				}
				_, err := s.Upload(t.Context(), site.Photo{Owner: star, Visibility: contacts.Public, DateUpload: 100})
				must(t, err)
				q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
				handlers := tasks.Handlers(slowSets{}, s.Store, q, tasks.HandlerOptions{PartSize: 2})
				enqueue(t, q, tasks.NewUpload(star))
				deaf(5 * time.Second)
				for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutAgain} {
					for {
						list := claimFor(t, q, name, 1, time.Minute)
						if len(list) == 0 {
							break
						}
						o := handlers[list[0].Kind].Handle(t.Context(), list)[0]
						must(t, o.Err)
						_, err := q.Finish(t.Context(), []queue.Result{{Task: list[0], Next: o.Next}})
						must(t, err)
					}
				}
				rose := metricstest.Gather(t).Since(before)
				if n, followers := rose["activityd_fan_out_followers"], rose["activityd_fan_out_followers_sum"]; n != 1 || followers != float64(test.followers) {
					t.Errorf("%v fan-outs of %v followers, want one of %d", n, followers, test.followers)
				}
				if n, lag := rose["activityd_upload_to_index_seconds"], rose["activityd_upload_to_index_seconds_sum"]; n != 1 || lag != test.seconds {
					t.Errorf("%v fan-outs took %v seconds, want one that took %v", n, lag, test.seconds)
				}
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
