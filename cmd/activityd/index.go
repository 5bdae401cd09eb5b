package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/settings"
)

// indexConfig is the part about the sets.
type indexConfig struct {
	need        int
	materialize string
	setLife     time.Duration
}

// The choices of --materialize.
const (
	materializeAll    = "all"
	materializeActive = "active"
)

const (
	// headroom is how much larger than need a set is, in percent: so many contacts may leave before a refill.
	headroom = 20
	// setLife is how long a set is kept after its last read or refill where only active members have a set.
	setLife = 30 * 24 * time.Hour
	// broadcastAt is with how many followers a member becomes a broadcast member: the fan-out of an upload to so many takes some
	// hundred milliseconds of a processor.
	broadcastAt = 100_000
)

func (c *indexConfig) indexFlags(f *pflag.FlagSet) {
	f.Var(settings.NewNumber(&c.need, 10, 1, 10_000, "candidates"), "need", "candidates that a read wants; a set holds a fifth more; stored with the sets")
	f.Var(settings.NewChoice(&c.materialize, materializeAll, materializeActive), "materialize", "which members have sets: all, or only the active ones, which read")
	c.setLife = setLife
}

func (c *indexConfig) indexOptions() (index.Options, error) {
	s, err := index.NewSettings(c.need, headroom, 0)
	o := index.Options{Settings: s}
	if c.materialize == materializeActive {
		o.SetLife = c.setLife
	}
	return o, err
}

func (c *indexConfig) readerOptions(s index.Settings) recent.Options {
	return recent.Options{Min: s.Min}
}

// databaseID is the id of the database, from when it was read.
type databaseID struct {
	db    *sql.DB
	known atomic.Pointer[string]
}

// get returns the id, or "" while it is not known.
func (d *databaseID) get() string {
	if id := d.known.Load(); id != nil {
		return *id
	}
	return ""
}

// read reads the id unless it is known, and takes 5 s at most.
func (d *databaseID) read(ctx context.Context) error {
	if d.known.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	id, err := schema.DatabaseID(ctx, d.db)
	if err == nil {
		d.known.Store(&id)
	}
	return err
}

// isRedisRefusal reports whether waiting does not mend an error of [index.Index.Check]: sets of another database or of
// other settings, a database that Redis does not have, a Redis that hides its run.
func isRedisRefusal(err error) bool {
	return errors.Is(err, index.ErrSettings) || errors.Is(err, index.ErrNoDatabase) || errors.Is(err, index.ErrHidden)
}

// namedRedis names the flag that an error of the index is due to.
func namedRedis(err error) error {
	if errors.Is(err, index.ErrNoDatabase) {
		return fmt.Errorf("--redis-url (%s): %w: want a number that the server has, as in redis://host:6379/0; a cluster has 0 only, and its URL is redis+cluster://host:6379",
			settings.Variable("redis-url"), err)
	}
	return err
}
