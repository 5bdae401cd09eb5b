package demo

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
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
	plain := d.askPlainly(ctx, v, &c)
	if c.plainErr == nil && !sameAlbum(c.answer.Album, plain) {
		if err := d.read(ctx, v, &c); err != nil {
			return c, err
		}
	}
	if c.plainErr == nil {
		c.agree = sameAlbum(c.answer.Album, plain)
		c.usual, c.plainUsual = d.memory.addTimes(v.ID, c.took, c.plainTook)
	}
	return c, nil
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
