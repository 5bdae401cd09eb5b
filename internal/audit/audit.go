package audit

import (
	"cmp"
	"context"
	"time"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
)

// Sets is what the audit asks of the index.
type Sets interface {
	Settings() index.Settings
	Look(ctx context.Context, users []member.ID) ([]index.Set, error)
}

// Truth is what the audit asks of MySQL. It must be the primary: what a replica
// says lags behind the tasks.
type Truth interface {
	Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error)
	TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error)
	Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error)
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
}

// Tasks is what the audit asks of the queue.
type Tasks interface {
	Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error)
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
}

// Reader reads by way of the index, as the service does, but without hints, which
// would repair what is to be found.
type Reader interface {
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// The defaults of [Options].
const (
	DefaultPause    = 250 * time.Millisecond
	DefaultLagLimit = 10 * time.Minute
)

// Options say what an [Auditor] audits and how. Sets, Truth and Tasks are
// required; the zero value of the rest stands for its default.
type Options struct {
	Sets  Sets
	Truth Truth
	Tasks Tasks
	// Reader is needed for [Auditor.CheckAnswers] only.
	Reader Reader
	// ActiveOnly says that a missing set is no error, because only the sets of members
	// that read are kept.
	ActiveOnly bool
	// Pause is the time between the first and the second look at a suspicion; before
	// the third it is four times as long.
	Pause time.Duration
	// LagLimit is how long a task may be pending before its lag is called lasting.
	LagLimit time.Duration
	// Now is the clock for LagLimit; nil: time.Now.
	Now func() time.Time
	// Pacer lets each look begin when the servers bear it; the pauses between looks are
	// outside. Nil: they begin at once.
	Pacer *bulk.Pacer
}

// Auditor compares sets and answers with MySQL. It changes nothing, but for
// [Auditor.Repair]. It is safe for concurrent use.
type Auditor struct{ options Options }

// New returns an auditor.
func New(o Options) *Auditor {
	o.Pause = cmp.Or(o.Pause, DefaultPause)
	o.LagLimit = cmp.Or(o.LagLimit, DefaultLagLimit)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Auditor{o}
}
