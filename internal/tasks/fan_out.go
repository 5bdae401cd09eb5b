package tasks

import (
	"context"
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

// Upload is the kind that looks again at the member, who may have uploaded. FanOut, which
// only activityd enqueues, tells the member's followers, from one on, of its last upload.
const (
	Upload = "upload"
	FanOut = "fan_out"
)

var (
	upload = kind{
		Name: Upload, Queue: QueueDefault, Order: orderUploader, Produced: true, Changes: FollowerSets,
		DedupeKey: func(of member.ID, _ Args) string { return fmt.Sprintf("upload:%d", of) },
		Handler:   newUploadHandler,
	}
	// Parts have no order: those of several uploads of a member may run side by side.
	fanOut = kind{
		Name: FanOut, Queue: QueueFanOut, Changes: FollowerSets,
		DedupeKey: func(of member.ID, a Args) string { return fmt.Sprintf("fan_out:%d:%d", of, a.After) },
		Handler:   newUploadHandler,
	}
)

// NewUpload asks to tell the followers of user about its last upload.
func NewUpload(user member.ID) queue.New { return upload.task(user, Args{}) }

// NewFanOut asks to tell the followers of user whose id is above after.
func NewFanOut(user, after member.ID) queue.New { return fanOut.task(user, Args{After: after}) }

func newUploadHandler(w work) queue.Handler {
	return UploadHandler{Index: w.Index, Store: w.Store, Queue: w.Queue, PartSize: w.PartSize, ActiveOnly: w.ActiveOnly}
}

// UploadHandler handles upload and fan_out: it tells an uploader's followers of
// the last upload. An upload does the first part of the fan-out itself; every
// part that is full enqueues the next one, as a fan_out task, before it writes
// its own. So no single task is long, a crash loses nothing, parts run in
// parallel, and other tasks run in between.
type UploadHandler struct {
	Index Index
	Store Store
	Queue Enqueuer
	// PartSize is how many followers one task tells.
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
		switch args, bad := ArgsOf(t); {
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
	for pages := range slices.Chunk(slices.Collect(maps.Keys(parts)), h.pagesAtOnce()) {
		next, err := h.tell(ctx, pages, parts)
		for _, page := range pages {
			for _, i := range parts[page].tasks {
				all[i].Err = err
			}
			first := parts[page].tasks[0]
			if last := batch[first].Attempts >= batch[first].MaxAttempts; err == nil || last && !isAway(err) {
				all[first].Next = next[page]
			}
		}
	}
	return all
}

// standIns returns, for each uploader who has to wait, the place of one upload
// that waits for all of the batch. One that may expire cannot stand for others.
func standIns(batch []queue.Task, busy map[uint64]bool) map[uint64]int {
	chosen := make(map[uint64]int)
	for i, t := range batch {
		_, bad := ArgsOf(t)
		if _, ok := chosen[t.Key]; !ok && t.Kind == Upload && busy[t.Key] && !t.Expires && bad == nil {
			chosen[t.Key] = i
		}
	}
	return chosen
}

// followersAtOnce bounds the followers that are told, and held in memory, at
// once.
const followersAtOnce = 20_000

func (h UploadHandler) pagesAtOnce() int { return max(1, followersAtOnce/h.PartSize) }

var errFanningOut = errors.New("the uploader's previous upload is still being told to the followers")

// begin returns the uploaders whose uploads have to wait, and takes over the
// uploads of the others that have not been started. These are committed, so the
// reads that follow see what they are about. A task on its last attempt, or one
// that cannot be understood, takes nothing over: they would die with it.
func (h UploadHandler) begin(ctx context.Context, batch []queue.Task) (busy map[uint64]bool, err error) {
	uploads := slices.DeleteFunc(slices.Clone(batch), func(t queue.Task) bool {
		_, bad := ArgsOf(t)
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

// tell does one part for each of the pages, and returns the parts that follow. Each
// part reads the last upload again, so that a late one tells the newest.
func (h UploadHandler) tell(ctx context.Context, wanted []contacts.FollowerPage, parts map[contacts.FollowerPage]*part) (next map[contacts.FollowerPage][]queue.New, err error) {
	pages, lastUploads, err := h.uploaded(ctx, wanted)
	if err != nil || len(pages) == 0 {
		return nil, err
	}
	followers, err := h.Store.FollowerPages(ctx, pages, h.PartSize)
	if err != nil {
		return nil, fmt.Errorf("followers of %d uploaders: %w", len(pages), err)
	}
	next = make(map[contacts.FollowerPage][]queue.New)
	var additions []index.Addition
	for i, page := range pages {
		upload := index.Entry{Contact: page.Of, Score: lastUploads[page.Of]}
		for _, user := range followers[i] {
			additions = append(additions, index.Addition{Member: user, Entry: upload})
		}
		if len(followers[i]) == h.PartSize {
			next[page] = []queue.New{parts[page].successor(page.Of, followers[i])}
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
