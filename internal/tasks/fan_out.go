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

// Upload is the kind that looks again at the member, which may have uploaded. FanOut, which
// only activityd enqueues, writes the member's last upload to the sets of its followers,
// from one on.
const (
	Upload = "upload"
	FanOut = "fan_out"
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
	// Parts have no order: those of several uploads of a member may run side by side.
	fanOut = kind{
		Name: FanOut, Workers: queue.Workers{Queue: QueueFanOut, Count: 2, Batch: 4}, Changes: FollowerSets,
		DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
			args, err := decode[PartArgs](payload)
			return partKey(of, args), err
		},
		Handler: newUploadHandler, Group: "uploads",
	}
)

// PartArgs are the payload of fan_out and fan_out_again, and of upload, which has none of them.
type PartArgs struct {
	After   member.ID   `json:"after,omitzero"`   // the followers above this id
	To      member.ID   `json:"to,omitzero"`      // and not above this one; 0: all
	For     []member.ID `json:"for,omitempty"`    // to be done when the set of one of these can be written to
	Since   int64       `json:"since,omitzero"`   // when the upload's task was enqueued, unix milliseconds
	Updated int         `json:"updated,omitzero"` // how many followers' sets the parts before it updated
}

// Reaches reports whether the part updates the set of a follower.
func (p PartArgs) Reaches(follower member.ID) bool {
	return follower > p.After && (p.To == 0 || follower <= p.To)
}

// NewUpload asks to write the last upload of user to the sets of its followers.
func NewUpload(user member.ID) queue.New { return upload.task(user, PartArgs{}) }

// NewFanOut asks the same for the followers whose id is above after.
func NewFanOut(user, after member.ID) queue.New { return fanOut.task(user, PartArgs{After: after}) }

func newUploadHandler(w work) queue.Handler {
	return UploadHandler{Index: w.Index, Store: w.Store, Queue: w.Queue, PartSize: w.PartSize, ActiveOnly: w.ActiveOnly, BroadcastAt: w.BroadcastAt}
}

// UploadHandler handles upload, fan_out and fan_out_again: it writes an uploader's last
// upload to the sets of its followers, page by page. An upload does the first page of the
// fan-out itself; what is left is a follow-up, a fan_out task, which does the next part. So
// no single task is long, a crash loses nothing, and other tasks run in between.
//
// Sets that cannot be written to hold up no others: their page is left to a follow-up of
// the kind fan_out_again, and the fan-out goes on.
type UploadHandler struct {
	Index Index
	Store Store
	Queue Enqueuer
	// PartSize is how many followers one task updates.
	PartSize int
	// ActiveOnly leaves missing sets missing until their user's next read.
	ActiveOnly bool
	// BroadcastAt is as in [HandlerOptions].
	BroadcastAt int
}

// Enqueuer is what the handlers need of the queue.
type Enqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
	Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error)
	Dedupe(ctx context.Context, held []queue.Task) (deduped int, err error)
}

// fanOutPause is how long an upload waits for the uploader's fan-out before it.
const fanOutPause = 500 * time.Millisecond

// Handle implements [queue.Handler]. An upload whose uploader's previous fan-out is under
// way waits for its end; when it begins, it does the work of all others that wait. So of
// one uploader at most one fan-out runs and one waits, however many uploads come in a
// burst.
func (h UploadHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	start := time.Now()
	all := make([]queue.Outcome, len(batch))
	postponed := h.postpone(ctx, batch, all)
	busy, err := h.begin(ctx, batch)
	standIns := standIns(batch, busy)
	parts := make(map[place]*part)
	for i, t := range batch {
		switch args, bad := ArgsOf[PartArgs](t); {
		case postponed[i]:
		case err != nil:
			all[i].Err = err
		case bad != nil:
			all[i].Err = bad
		case t.Kind == Upload && busy[t.Key]:
			if of, ok := standIns[t.Key]; !ok || of == i {
				all[i].Err = queue.Later(retry.Jitter(fanOutPause), errFanningOut)
			}
		default:
			at := place{contacts.FollowerPage{Of: member.ID(t.Key), After: args.After}, args.To}
			parts[at] = parts[at].with(i, t, args, start)
		}
	}
	for done := 0; len(parts) > 0; done += h.pageSize() {
		parts = h.updatePages(ctx, parts, all)
		for at, p := range parts {
			if p.upload || done+h.pageSize() >= h.PartSize {
				p.follow(all, p.successor(at))
				delete(parts, at)
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
func (h UploadHandler) updatePages(ctx context.Context, parts map[place]*part, all []queue.Outcome) map[place]*part {
	rest := make(map[place]*part)
	for places := range slices.Chunk(slices.Collect(maps.Keys(parts)), max(1, maxFollowers/h.pageSize())) {
		done := h.update(ctx, places)
		for _, at := range places {
			if d, uploaded := done[at]; uploaded {
				h.count(parts[at], d)
			}
			if next, more := h.turn(parts[at], at, done[at], all); more {
				rest[next] = parts[at].join(rest[next])
			}
		}
	}
	return rest
}

// turn ends a page of the part. It returns the next page that the part is to do now, if
// there is one. A page with sets that could not be written to is left to a task; if there were no others, the rest of
// the fan-out is left with it.
func (h UploadHandler) turn(p *part, at place, d pageDone, all []queue.Outcome) (next place, more bool) {
	if d.err != nil && p.advanced {
		p.follow(all, p.successor(at))
		return place{}, false
	}
	for _, i := range p.tasks {
		all[i].Err = d.err
	}
	if d.err == nil && len(d.failed) > 0 {
		to := cmp.Or(d.next, at.to)
		if d.updated == 0 {
			to = at.to
		}
		p.follow(all, p.again(h.Index, at, to, d.failed))
		if d.updated == 0 {
			return place{}, false
		}
	}
	if h.crosses(p.updated, d) {
		p.follow(all, broadcasting.task(at.Of, BroadcastArgs{}))
	}
	if d.next == 0 {
		return place{}, false
	}
	p.advanced, p.updated = true, p.updated+d.updated
	next = at
	next.After = d.next
	if d.err != nil {
		p.follow(all, p.successor(next))
	}
	return next, d.err == nil
}

// crosses reports whether a fan-out that had updated some sets before a page has come to so many with it that its
// member is to be a broadcast member. The rest of the fan-out is spared then.
func (h UploadHandler) crosses(before int, d pageDone) bool {
	return d.err == nil && h.BroadcastAt > 0 && before < h.BroadcastAt && before+d.updated >= h.BroadcastAt
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

// begin returns the uploaders whose uploads have to wait, and takes over the uploads of the
// others that have not been started. These are
// committed, so the reads that follow see what they are about. A task on its last attempt,
// or one that cannot be understood, takes nothing over: they would die with it.
func (h UploadHandler) begin(ctx context.Context, batch []queue.Task) (busy map[uint64]bool, err error) {
	var uploads, free []queue.Task
	for _, t := range batch {
		if _, bad := ArgsOf[PartArgs](t); bad == nil && t.Kind == Upload {
			uploads = append(uploads, t)
		}
	}
	if len(uploads) > 0 {
		if busy, err = h.Queue.Active(ctx, FanOut, keys(uploads)); err != nil {
			return nil, err
		}
	}
	for _, t := range uploads {
		if !busy[t.Key] {
			free = append(free, t)
		}
	}
	free = slices.DeleteFunc(free, func(t queue.Task) bool { return t.Attempts >= t.MaxAttempts })
	if len(uploads)+len(free) == 0 {
		return busy, nil
	}
	absorbed, err := h.Queue.Dedupe(ctx, free)
	uploadsAbsorbed.Add(float64(absorbed))
	return busy, err
}

// pageDone is the result of a page.
type pageDone struct {
	next    member.ID   // the last follower of a full page, above which the next one begins; 0: there is no next one
	updated int         // sets that were updated
	failed  []member.ID // whose sets could not be written to
	err     error       // why the page has to be done again
}

// update writes the uploads to the sets of the followers of the pages. It reads the last
// upload each time, so that a late page writes the newest.
func (h UploadHandler) update(ctx context.Context, wanted []place) map[place]pageDone {
	done := make(map[place]pageDone, len(wanted))
	failAll := func(err error) map[place]pageDone {
		for _, at := range wanted {
			d := done[at]
			d.err = err
			done[at] = d
		}
		return done
	}
	places, lastUploads, err := h.uploaded(ctx, wanted)
	if err != nil || len(places) == 0 {
		return failAll(err)
	}
	pages := make([]contacts.FollowerPage, len(places))
	for i, at := range places {
		pages[i] = at.FollowerPage
	}
	followers, err := h.pages(ctx, pages, lastUploads, h.pageSize())
	if err != nil {
		return failAll(err)
	}
	var additions []index.Addition
	for i, at := range places {
		followers[i], done[at] = at.cut(followers[i], h.pageSize())
		for _, user := range followers[i] {
			additions = append(additions, index.Addition{Member: user, Entry: index.Entry{Contact: at.Of, Score: lastUploads[at.Of]}})
		}
	}
	if len(additions) == 0 {
		return done
	}
	missing, failed := h.Index.Add(ctx, additions)
	for i, at := range places {
		d := done[at]
		for _, user := range followers[i] {
			if err := failed[user]; err == nil {
				d.updated++
			} else if d.failed = append(d.failed, user); !errors.Is(err, index.ErrUnavailable) {
				d.err = err // it is no node that is away
			}
		}
		done[at] = d
	}
	if !h.ActiveOnly {
		if err := h.refill(ctx, missing); err != nil {
			return failAll(err)
		}
	}
	return done
}

// cut returns the followers that belong to the page.
func (at place) cut(followers []member.ID, limit int) ([]member.ID, pageDone) {
	d := pageDone{}
	if n := len(followers); n == limit {
		d.next = followers[n-1]
	}
	if at.to != 0 {
		followers = slices.DeleteFunc(followers, func(user member.ID) bool { return user > at.to })
		if d.next >= at.to {
			d.next = 0
		}
	}
	return followers, d
}

// pages returns pages of followers, none of broadcast members, to whose rows it writes their last uploads.
//
// An upload whose task is done is in the row or in all sets, or in both. The upload was committed before its task. If a
// page finds a row, it is written there. If a page finds no row, it goes to the sets of the page, and the next page asks again;
// a row that was deleted before was deleted after a fan-out that began when its member was leaving.
func (h UploadHandler) pages(ctx context.Context, pages []contacts.FollowerPage, lastUploads map[member.ID]uint64, limit int) ([][]member.ID, error) {
	followers, broadcasts, err := h.Store.FanOutPages(ctx, pages, limit)
	if err != nil {
		return nil, fmt.Errorf("followers of %d uploaders: %w", len(pages), err)
	}
	for id := range broadcasts {
		if err := h.Store.RaiseBroadcast(ctx, id, lastUploads[id]); err != nil {
			return nil, err
		}
	}
	return followers, nil
}

// count counts the chain if it has ended with a page, unless its beginning was not noted.
func (h UploadHandler) count(p *part, d pageDone) {
	if d.next == 0 && d.err == nil && p.since != 0 {
		fanOutFollowers.Observe(float64(p.updated + d.updated))
		uploadToIndexSeconds.Observe(p.lag().Seconds())
	}
}

// uploaded returns the places of members that ever uploaded, and when they last did.
func (h UploadHandler) uploaded(ctx context.Context, wanted []place) ([]place, map[member.ID]uint64, error) {
	ids := make([]member.ID, len(wanted))
	for i, at := range wanted {
		ids[i] = at.Of
	}
	lastUploads, err := h.Store.LastUploads(ctx, unique(ids))
	if err != nil {
		return nil, nil, fmt.Errorf("last uploads of %d members: %w", len(ids), err)
	}
	var places []place
	for _, at := range wanted {
		if lastUploads[at.Of] > 0 {
			places = append(places, at)
		}
	}
	return places, lastUploads, nil
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
	members, err := h.Store.LastUploads(ctx, users)
	if err != nil {
		return fmt.Errorf("which of %d followers are members: %w", len(users), err)
	}
	var refills []queue.New
	for _, user := range users {
		if _, isMember := members[user]; isMember {
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
