package tasks

import (
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
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/retry"
)

// Upload is the kind that looks again at the member, which may have uploaded. FanOut, which
// only activityd enqueues, writes the member's last upload to the sets of its followers,
// from one on.
const (
	Upload = "upload"
	FanOut = "fan_out"
)

var (
	upload = kind{
		Name: Upload, Workers: defaultWorkers, Order: orderUploader, Produced: true, Changes: FollowerSets,
		DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
			_, err := decode[PartArgs](payload)
			return fmt.Sprintf("upload:%d", of), err
		},
		Handler: newUploadHandler,
	}
	// Parts have no order: those of several uploads of a member may run side by side.
	fanOut = kind{
		Name: FanOut, Workers: queue.Workers{Queue: QueueFanOut, Count: 2, Batch: 4}, Changes: FollowerSets,
		DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
			args, err := decode[PartArgs](payload)
			return fmt.Sprintf("fan_out:%d:%d", of, args.After), err
		},
		Handler: newUploadHandler,
	}
)

// PartArgs are the payload of fan_out, and of upload, which has none of them.
type PartArgs struct {
	After member.ID `json:"after,omitzero"` // the followers above this id
	Since int64     `json:"since,omitzero"` // when the upload's task was enqueued, unix milliseconds
	Told  int       `json:"told,omitzero"`  // how many followers the parts before it updated
}

// NewUpload asks to write the last upload of user to the sets of its followers.
func NewUpload(user member.ID) queue.New { return upload.task(user, PartArgs{}) }

// NewFanOut asks the same for the followers whose id is above after.
func NewFanOut(user, after member.ID) queue.New { return fanOut.task(user, PartArgs{After: after}) }

func newUploadHandler(w work) queue.Handler {
	return UploadHandler{Index: w.Index, Store: w.Store, Queue: w.Queue, PartSize: w.PartSize, ActiveOnly: w.ActiveOnly}
}

// UploadHandler handles upload and fan_out: it writes an uploader's last upload to the
// sets of its followers, page by page. An upload does the first page of the fan-out itself;
// what is left is a follow-up, a fan_out task, which does the next part. So no single
// task is long, a crash loses nothing, and other tasks run in between.
type UploadHandler struct {
	Index Index
	Store Store
	Queue Enqueuer
	// PartSize is how many followers one task updates.
	PartSize int
	// ActiveOnly leaves missing sets missing until their user's next read.
	ActiveOnly bool
}

// Enqueuer is what the handlers need of the queue.
type Enqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
	Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error)
	Absorb(ctx context.Context, held []queue.Task) (absorbed int, err error)
}

// fanOutPause is how long an upload waits for the uploader's fan-out before it.
const fanOutPause = 500 * time.Millisecond

// Handle implements [queue.Handler]. An upload whose
// uploader's previous fan-out is under way waits for its end; when it begins, it
// does the work of all others that wait. So of one uploader at most one fan-out
// runs and one waits, however many uploads come in a burst.
func (h UploadHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	start := time.Now()
	all := make([]queue.Outcome, len(batch))
	busy, err := h.begin(ctx, batch)
	standIns := standIns(batch, busy)
	parts := make(map[contacts.FollowerPage]*part)
	for i, t := range batch {
		switch args, bad := ArgsOf[PartArgs](t); {
		case err != nil:
			all[i].Err = err
		case bad != nil:
			all[i].Err = bad
		case t.Kind == Upload && busy[t.Key]:
			if of, ok := standIns[t.Key]; !ok || of == i {
				all[i].Err = queue.Later(retry.Jitter(fanOutPause), errFanningOut)
			}
		default:
			page := contacts.FollowerPage{Of: member.ID(t.Key), After: args.After}
			parts[page] = parts[page].with(i, t, args, start)
		}
	}
	for done := 0; len(parts) > 0; done += h.pageSize() {
		parts = h.updatePages(ctx, parts, all)
		for page, p := range parts {
			if p.upload || done+h.pageSize() >= h.PartSize {
				all[p.tasks[0]].Next = []queue.New{p.successor(page)}
				delete(parts, page)
			}
		}
	}
	return all
}

// maxPage bounds the followers of one uploader that are read and written at once, and
// maxFollowers those of all that are updated, and held in memory, at once. In smaller pages
// the round trips outweigh the work.
const (
	maxPage      = 2500
	maxFollowers = 20_000
)

func (h UploadHandler) pageSize() int { return min(h.PartSize, maxPage) }

// updatePages does the next page of each part, and returns the parts that have further
// ones. A part whose first page fails fails; should it be dead then, its successor goes on
// behind that page, if the page could be read. One that fails at a later page is done, and
// its successor begins with that page: so each attempt makes progress.
func (h UploadHandler) updatePages(
	ctx context.Context, parts map[contacts.FollowerPage]*part, all []queue.Outcome,
) map[contacts.FollowerPage]*part {
	rest := make(map[contacts.FollowerPage]*part)
	for pages := range slices.Chunk(slices.Collect(maps.Keys(parts)), max(1, maxFollowers/h.pageSize())) {
		next, err := h.update(ctx, pages, parts)
		for _, page := range pages {
			p := parts[page]
			if err != nil && p.advanced {
				all[p.tasks[0]].Next = []queue.New{p.successor(page)}
				continue
			}
			for _, i := range p.tasks {
				all[i].Err = err
			}
			if after, more := next[page]; more {
				p.advanced, p.told = true, p.told+h.pageSize()
				if err == nil {
					rest[after] = p.join(rest[after])
				} else {
					all[p.tasks[0]].Next = []queue.New{p.successor(after)}
				}
			}
		}
	}
	return rest
}

// standIns returns, for each uploader that has to wait, the place of one upload
// that waits for all of the batch. One that may expire cannot stand for others.
func standIns(batch []queue.Task, busy map[uint64]bool) map[uint64]int {
	chosen := make(map[uint64]int)
	for i, t := range batch {
		_, bad := ArgsOf[PartArgs](t)
		if _, ok := chosen[t.Key]; !ok && t.Kind == Upload && busy[t.Key] && !t.Expires && bad == nil {
			chosen[t.Key] = i
		}
	}
	return chosen
}

var errFanningOut = errors.New("the fan-out of the uploader's previous upload is not finished")

// begin returns the uploaders whose uploads have to wait, and takes over the
// uploads of the others that have not been started. These are committed, so the
// reads that follow see what they are about. A task on its last attempt, or one
// that cannot be understood, takes nothing over: they would die with it.
func (h UploadHandler) begin(ctx context.Context, batch []queue.Task) (busy map[uint64]bool, err error) {
	uploads := slices.DeleteFunc(slices.Clone(batch), func(t queue.Task) bool {
		_, bad := ArgsOf[PartArgs](t)
		return t.Kind != Upload || bad != nil
	})
	if len(uploads) == 0 {
		return map[uint64]bool{}, nil
	}
	busy, err = h.Queue.Active(ctx, FanOut, keys(uploads))
	if err != nil {
		return nil, err
	}
	free := slices.DeleteFunc(uploads, func(t queue.Task) bool { return busy[t.Key] || t.Attempts >= t.MaxAttempts })
	absorbed, err := h.Queue.Absorb(ctx, free)
	uploadsAbsorbed.Add(float64(absorbed))
	return busy, err
}

// update writes the uploads to the sets of the followers of the pages, and returns the
// pages after those that are full. It reads the last upload each time, so that a late page writes the newest.
func (h UploadHandler) update(
	ctx context.Context, wanted []contacts.FollowerPage, parts map[contacts.FollowerPage]*part,
) (next map[contacts.FollowerPage]contacts.FollowerPage, err error) {
	pages, lastUploads, err := h.uploaded(ctx, wanted)
	if err != nil || len(pages) == 0 {
		return nil, err
	}
	followers, err := h.Store.FollowerPages(ctx, pages, h.pageSize())
	if err != nil {
		return nil, fmt.Errorf("followers of %d uploaders: %w", len(pages), err)
	}
	next = make(map[contacts.FollowerPage]contacts.FollowerPage)
	var additions []index.Addition
	for i, page := range pages {
		upload := index.Entry{Contact: page.Of, Score: lastUploads[page.Of]}
		for _, user := range followers[i] {
			additions = append(additions, index.Addition{Member: user, Entry: upload})
		}
		if n := len(followers[i]); n == h.pageSize() {
			next[page] = contacts.FollowerPage{Of: page.Of, After: followers[i][n-1]}
		}
	}
	var missing []member.ID
	if len(additions) > 0 {
		missing, err = h.Index.Add(ctx, additions)
	}
	if err == nil && !h.ActiveOnly {
		err = h.refill(ctx, missing)
	}
	if err == nil {
		h.countEnds(pages, followers, parts)
	}
	return next, err
}

// uploaded keeps the pages of those who ever uploaded.
func (h UploadHandler) uploaded(ctx context.Context, wanted []contacts.FollowerPage) ([]contacts.FollowerPage, map[member.ID]uint64, error) {
	ids := make([]member.ID, len(wanted))
	for i, page := range wanted {
		ids[i] = page.Of
	}
	lastUploads, err := h.Store.LastUploads(ctx, unique(ids))
	if err != nil {
		return nil, nil, fmt.Errorf("last uploads of %d members: %w", len(ids), err)
	}
	var pages []contacts.FollowerPage
	for _, page := range wanted {
		if lastUploads[page.Of] > 0 {
			pages = append(pages, page)
		}
	}
	return pages, lastUploads, nil
}

// refillsAtOnce keeps transactions short: many fan-outs may ask for refills of
// the same users at once, and stand in each other's way the longer they last.
const refillsAtOnce = 200

// refill enqueues refills of the users that are members. A refill of any other makes
// no set, so that each upload would enqueue it again. One that becomes a member later
// has a missing set, which means unknown.
func (h UploadHandler) refill(ctx context.Context, users []member.ID) error {
	if len(users) == 0 {
		return nil
	}
	exist, err := h.Store.Existing(ctx, users)
	if err != nil {
		return fmt.Errorf("which of %d followers are members: %w", len(users), err)
	}
	var refills []queue.New
	for _, user := range users {
		if exist[user] {
			refills = append(refills, NewRefill(user))
		}
	}
	for some := range slices.Chunk(refills, refillsAtOnce) {
		if _, err := h.Queue.Enqueue(ctx, some); err != nil {
			return fmt.Errorf("enqueue %d refills: %w", len(refills), err)
		}
	}
	return nil
}
