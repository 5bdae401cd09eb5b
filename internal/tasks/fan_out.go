package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// Upload is the kind that writes a member's last upload to the sets of its followers. The task writes the first page.
// Kinds that only activityd enqueues do the rest: FanOut the next page, FanOutAgain a page with sets on a node of Redis
// that was away.
const (
	Upload      = "upload"
	FanOut      = "fan_out"
	FanOutAgain = "fan_out_again"
)

var (
	upload = kind{
		Name: Upload, Workers: defaultWorkers, Ordered: true, Produced: true, Changes: FollowerSets,
		DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
			_, err := decode[PartArgs](payload)
			return fmt.Sprintf("upload:%d", of), err
		},
		Handler: newUploadHandler, Group: "uploads",
	}
	fanOut      = pageKind(FanOut, queue.Workers{Queue: QueueFanOut, Count: 2, Batch: 4})
	fanOutAgain = pageKind(FanOutAgain, queue.Workers{Queue: QueueFanOutAgain, Count: 1, Batch: 100})
)

// pageKind is a kind whose tasks have no order: pages of several uploads of a member may be written side by side.
func pageKind(name string, w queue.Workers) kind {
	return kind{
		Name: name, Workers: w, Changes: FollowerSets,
		DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
			a, err := decode[PartArgs](payload)
			key := fmt.Sprintf("%s:%d:%s", name, of, a.After)
			if a.To != 0 {
				key += fmt.Sprintf(":%s:%s", a.To, a.For)
			}
			return key, err
		},
		Handler: newUploadHandler, Group: "uploads",
	}
}

// PartArgs are the payload of fan_out and fan_out_again. An upload has none of the fields.
type PartArgs struct {
	After   member.ID `json:"after,omitzero"`   // the followers above this id
	To      member.ID `json:"to,omitzero"`      // and not above this id; 0: all
	For     member.ID `json:"for,omitzero"`     // the page waits until the set of this follower can be written to
	Since   int64     `json:"since,omitzero"`   // when the upload's task was enqueued, unix milliseconds
	Updated int       `json:"updated,omitzero"` // sets that the pages before it updated
}

// NewUpload asks to write the last upload of user to the sets of its followers.
func NewUpload(user member.ID) queue.New { return upload.task(user, PartArgs{}) }

// NewFanOut asks the same for the followers whose id is above after.
func NewFanOut(user, after member.ID) queue.New { return fanOut.task(user, PartArgs{After: after}) }

// UploadHandler handles upload, fan_out and fan_out_again. A task writes a page of followers, and a follow-up task goes
// on behind it: no task is long, a crash loses nothing, and other tasks run in between. A batch shares its statements.
//
// A node of Redis that is away holds up neither sets on another node, nor the pages behind it, nor later uploads of
// the member: fan_out_again writes the page again when the node is back. To add an upload twice changes nothing.
type UploadHandler work

func newUploadHandler(w work) queue.Handler { return UploadHandler(w) }

// Enqueuer is the queue, for handlers.
type Enqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
	Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error)
	Dedupe(ctx context.Context, held []queue.Task) (deduped int, err error)
}

const (
	// fanOutPause is how long an upload waits for the fan-out of the member's upload before it.
	fanOutPause = 500 * time.Millisecond
	// againPause is how long a page waits before it is written again. Uploads within this time add no task.
	againPause = 500 * time.Millisecond
	// awayPause is how long a page waits while its node is away: less than the time for which reads walk past a
	// node that came back.
	awayPause = 3 * time.Second
	// maxFollowers bounds the followers that are held in memory at once, uploadPage the page of an upload: many uploads
	// then share their statements, and contact changes in their queue do not wait for long.
	maxFollowers = 20_000
	uploadPage   = 2500
)

// awayRest is how long a batch waits whose nodes are all away, so that a long outage costs the queue little.
var awayRest = time.Second

// page is the work of a task.
type page struct {
	queue.Task
	PartArgs

	i         int // of the task in its batch
	followers []member.ID
	last      member.ID            // the follower behind which the next page begins; 0: there is none
	updated   int                  // sets
	err       error                // why the page has to be written again as a whole
	away      map[string]member.ID // by the name of a node that was away: the first follower on it
}

func (p *page) owner() member.ID { return member.ID(p.Key) }

// Handle implements [queue.Handler]. An upload waits while a fan-out of its member is under way. When it begins, it
// does the work of all uploads of the member that wait. So of a member at most one fan-out runs and one upload waits,
// however many uploads come in a burst.
func (h UploadHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	start, all := time.Now(), make([]queue.Outcome, len(batch))
	if batch[0].Kind == Upload {
		h.PartSize = min(h.PartSize, uploadPage)
	}
	for pages := range slices.Chunk(h.begin(ctx, batch, all), max(1, maxFollowers/h.PartSize)) {
		h.write(ctx, pages)
		for _, p := range pages {
			all[p.i] = h.outcome(p, start)
		}
	}
	return all
}

// begin returns the pages that are to be written now, and fills in the outcomes of tasks that wait.
func (h UploadHandler) begin(ctx context.Context, batch []queue.Task, all []queue.Outcome) (pages []*page) {
	for i, t := range batch {
		args, err := ArgsOf[PartArgs](t)
		isUsable := true
		if args.For != 0 { // the answer may take a while
			_, isUsable = h.Index.NodeOf(args.For)
		}
		switch all[i].Err = err; {
		case err != nil:
		case !isUsable:
			all[i].Next = []queue.New{again(t, args, awayPause)}
		default:
			pages = append(pages, &page{i: i, Task: t, PartArgs: args})
		}
	}
	if len(pages) == 0 && batch[0].Kind == FanOutAgain {
		_ = retry.Sleep(ctx, awayRest) // the outcomes stand
	}
	busy, err := h.absorb(ctx, pages)
	return slices.DeleteFunc(pages, func(p *page) bool {
		if all[p.i].Err = err; err == nil && busy[p.Key] && p.Kind == Upload {
			all[p.i].Err = queue.Later(retry.Jitter(fanOutPause), errors.New("the fan-out of the uploader's previous upload is not finished"))
		}
		return all[p.i].Err != nil
	})
}

// absorb returns the uploaders whose uploads have to wait, and deletes the waiting uploads of all the rest. Their
// changes are committed, so that the reads that follow see them. A task on its last attempt absorbs nothing: the work
// would die with it.
func (h UploadHandler) absorb(ctx context.Context, pages []*page) (busy map[uint64]bool, err error) {
	var uploads []queue.Task
	for _, p := range pages {
		if p.Kind == Upload {
			uploads = append(uploads, p.Task)
		}
	}
	if len(uploads) == 0 {
		return nil, nil
	}
	if busy, err = h.Queue.Active(ctx, FanOut, keys(uploads)); err != nil {
		return nil, err
	}
	uploads = slices.DeleteFunc(uploads, func(t queue.Task) bool { return busy[t.Key] || t.Attempts >= t.MaxAttempts })
	_, err = h.Queue.Dedupe(ctx, uploads)
	return busy, err
}

// write writes the last uploads to the sets of the pages' followers. It reads the last uploads each time, so that a
// late page writes the newest. An error is the error of all pages.
func (h UploadHandler) write(ctx context.Context, pages []*page) {
	missing, err := h.add(ctx, pages)
	if err == nil && !h.ActiveOnly {
		err = h.refill(ctx, missing)
	}
	for _, p := range pages {
		p.err = cmp.Or(err, p.err)
	}
}

// add returns the followers that have no set.
func (h UploadHandler) add(ctx context.Context, pages []*page) (missing []member.ID, err error) {
	ids := make([]member.ID, len(pages))
	for i, p := range pages {
		ids[i] = p.owner()
	}
	lastUploads, err := h.Store.LastUploads(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("last uploads of %d members: %w", len(ids), err)
	}
	if err := h.readFollowers(ctx, pages, lastUploads); err != nil {
		return nil, err
	}
	var additions []index.Addition
	for _, p := range pages {
		for _, user := range p.followers {
			additions = append(additions, index.Addition{Member: user, Entry: index.Entry{Contact: p.owner(), Score: lastUploads[p.owner()]}})
		}
	}
	if len(additions) == 0 {
		return nil, nil
	}
	missing, failed := h.Index.Add(ctx, additions)
	for _, p := range pages {
		p.away = make(map[string]member.ID)
		for _, user := range p.followers {
			switch err := failed[user]; {
			case err == nil:
				p.updated++
			case errors.Is(err, index.ErrUnavailable):
				if node, _ := h.Index.NodeOf(user); p.away[node] == 0 {
					p.away[node] = user
				}
			default:
				p.err = err
			}
		}
	}
	return missing, nil
}

// readFollowers reads the followers of pages, none of broadcast members, to whose rows it writes their last uploads.
//
// An upload whose task is done is in the row or in all sets, or in both. The upload was committed before its task. If a
// page finds a row, it is written there. If a page finds no row, it goes to the sets of the page, and the next page asks
// again; a row that comes in between is made with the upload; a row that was deleted before was deleted after a fan-out
// that began when its member was leaving.
func (h UploadHandler) readFollowers(ctx context.Context, pages []*page, lastUploads map[member.ID]uint64) error {
	rows, err := h.Store.Broadcasts(ctx, slices.Collect(maps.Keys(lastUploads)))
	if err != nil {
		return err
	}
	for id := range rows {
		if err := h.Store.RaiseBroadcast(ctx, id, lastUploads[id]); err != nil {
			return err
		}
	}
	pages = slices.DeleteFunc(slices.Clone(pages), func(p *page) bool {
		b, isBroadcast := rows[p.owner()]
		return lastUploads[p.owner()] == 0 || isBroadcast && b.Leaving == 0
	})
	wanted := make([]contacts.FollowerPage, len(pages))
	for i, p := range pages {
		wanted[i] = contacts.FollowerPage{Of: p.owner(), After: p.After}
	}
	followers, err := h.Store.FollowerPages(ctx, wanted, h.PartSize)
	if err != nil {
		return fmt.Errorf("followers of %d uploaders: %w", len(pages), err)
	}
	for i, p := range pages {
		p.followers = slices.DeleteFunc(followers[i], func(user member.ID) bool { return p.To != 0 && user > p.To })
		if n := len(p.followers); n == h.PartSize && p.followers[n-1] != p.To {
			p.last = p.followers[n-1]
		}
	}
	return nil
}

// outcome ends a page. A page that fails comes again; if it is given up, the fan-out goes on behind it.
func (h UploadHandler) outcome(p *page, start time.Time) (o queue.Outcome) {
	next := p.PartArgs
	next.After, next.For, next.Updated = p.last, 0, p.Updated+p.updated
	if p.Kind == Upload && !p.Created.IsZero() {
		next.Since = p.Created.UnixMilli()
	}
	if o.Err = p.err; p.err == nil {
		for _, user := range slices.Sorted(maps.Values(p.away)) { // so that no node waits for another node
			left := PartArgs{After: p.After, To: p.followers[len(p.followers)-1], For: user, Since: next.Since}
			o.Next = append(o.Next, again(p.Task, left, againPause))
		}
		if h.BroadcastAt > 0 && p.Updated < h.BroadcastAt && next.Updated >= h.BroadcastAt {
			o.Next = append(o.Next, broadcasting.task(p.owner(), BroadcastArgs{})) // it ends the fan-out
		}
	}
	switch {
	case p.last != 0:
		k := fanOut
		if next.To != 0 {
			k = fanOutAgain
		}
		n := k.task(p.owner(), next)
		// A later upload of the member, which may be urgent, waits for the pages of an idle upload.
		n.Priority = min(p.Priority, queue.Normal)
		o.Next = append(o.Next, n)
	case p.err == nil && next.Since > 0:
		fanOutFollowers.Observe(float64(next.Updated))
		// The database's clock and the clock of this process may differ.
		lag := p.Claimed.Sub(time.UnixMilli(next.Since)) + time.Since(start)
		uploadToIndexSeconds.Observe(max(0, lag.Seconds()))
	}
	return o
}

// again is the task that writes a page again. It is a new task, so that its dedupe key holds: of a page at most one
// task waits, however many uploads come.
func again(t queue.Task, args PartArgs, pause time.Duration) queue.New {
	n := fanOutAgain.task(member.ID(t.Key), args)
	n.Delay = retry.Jitter(pause)
	return n
}

// refillsAtOnce keeps transactions short: fan-outs that ask for refills of the same users stand in each other's way.
const refillsAtOnce = 200

// refill enqueues refills of the users that are members. A refill of an id that is no member makes no set, so that
// each upload would enqueue it again.
func (h UploadHandler) refill(ctx context.Context, users []member.ID) error {
	if len(users) == 0 {
		return nil
	}
	members, err := h.Store.LastUploads(ctx, users)
	if err != nil {
		return fmt.Errorf("find the members among %d followers: %w", len(users), err)
	}
	var refills []queue.New
	for _, id := range slices.Sorted(maps.Keys(members)) {
		refills = append(refills, NewRefill(id))
	}
	for some := range slices.Chunk(refills, refillsAtOnce) {
		if _, err := h.Queue.Enqueue(ctx, some); err != nil {
			return fmt.Errorf("enqueue %d refills: %w", len(refills), err)
		}
	}
	return nil
}
