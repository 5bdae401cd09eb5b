package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/index"
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
