package demo

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// comparison is the same question asked both ways.
type comparison struct {
	answer    recent.Answer
	took      time.Duration
	plainTook time.Duration
	plainErr  error
	agree     bool
	// The medians of the viewer's latest comparisons.
	usual, plainUsual time.Duration
}

// compare reads the viewer's answer, and then asks plainly. The two are a
// moment apart: when they differ, the first is read once more, so that a change
// in between does not pass for a difference.
func (d *Demo) compare(ctx context.Context, v contacts.Viewer) (comparison, error) {
	var c comparison
	if err := d.read(ctx, v, &c); err != nil {
		return c, err
	}
	if plain := d.askPlainly(ctx, v, &c); c.plainErr == nil {
		err := d.settle(ctx, v, plain, &c)
		return c, err
	}
	return c, nil
}

func (d *Demo) settle(ctx context.Context, v contacts.Viewer, plain contacts.Album, c *comparison) error {
	if c.agree = sameAlbum(c.answer.Album, plain); !c.agree {
		if err := d.read(ctx, v, c); err != nil {
			return err
		}
		c.agree = sameAlbum(c.answer.Album, plain)
	}
	c.usual, c.plainUsual = d.history.add(v.ID, c.took, c.plainTook)
	return nil
}

func (d *Demo) read(ctx context.Context, v contacts.Viewer, c *comparison) error {
	start := time.Now()
	answer, err := d.cfg.Reader.Read(ctx, v, photosShown)
	c.answer, c.took = answer, time.Since(start)
	return err
}

// errPlainSlow stands for a plain question that was given up.
var errPlainSlow = errors.New("no answer within 3 s")

func (d *Demo) askPlainly(ctx context.Context, v contacts.Viewer, c *comparison) contacts.Album {
	const patience = 3 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errPlainSlow)
	defer cancel()
	start := time.Now()
	album, err := d.cfg.Plain(ctx, v, photosShown)
	c.plainTook, c.plainErr = time.Since(start), err
	if err != nil && errors.Is(context.Cause(ctx), errPlainSlow) {
		c.plainErr = errPlainSlow
	}
	return album
}

// sameAlbum tells whether both show the same photos of the same contact.
func sameAlbum(a, b contacts.Album) bool {
	if a.Contact == nil || b.Contact == nil {
		return a.Contact == nil && b.Contact == nil
	}
	return a.Contact.ID == b.Contact.ID &&
		slices.EqualFunc(a.Photos, b.Photos, func(p, q contacts.Photo) bool { return p.ID == q.ID })
}

// history keeps the latest times per viewer, so that one slow answer does not
// make the page's figures jump. The zero value is ready for use.
type history struct {
	mu   sync.Mutex
	runs map[member.ID]*runs // guarded by mu
}

type runs struct{ took, plain []time.Duration }

const (
	runsKept    = 15
	viewersKept = 50
)

// add notes the times of one comparison and returns the medians of the latest.
func (h *history) add(viewer member.ID, took, plain time.Duration) (usual, plainUsual time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs[viewer] == nil {
		if h.runs == nil || len(h.runs) >= viewersKept {
			h.runs = map[member.ID]*runs{}
		}
		h.runs[viewer] = &runs{}
	}
	r := h.runs[viewer]
	r.took, r.plain = latest(r.took, took), latest(r.plain, plain)
	return median(r.took), median(r.plain)
}

func latest(list []time.Duration, d time.Duration) []time.Duration {
	list = append(list, d)
	return list[max(0, len(list)-runsKept):]
}

// median returns the middle of a list that is not empty.
func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}
