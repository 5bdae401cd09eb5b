package audit

import "time"

// Origin says why something was checked.
type Origin string

// The origins.
const (
	OfRead  Origin = "read"  // it was sampled from the reads
	OfSweep Origin = "sweep" // the sweep came by
)

// Origins returns all origins.
func Origins() []Origin { return []Origin{OfRead, OfSweep} }

// Loss says how Redis was found to have lost data.
type Loss string

// The losses.
const (
	// Rewound: what was written before is gone. The server was emptied, or came
	// back with older data.
	Rewound Loss = "rewound"
	// Replaced: another server answers, or the same one was started again. It may
	// have lost the last moments before.
	Replaced Loss = "replaced"
)

// Losses returns all losses.
func Losses() []Loss { return []Loss{Rewound, Replaced} }

// Observer is told what a [Patrol] does, for metrics. Its methods are called from
// several goroutines, must be quick, and must not call back.
type Observer interface {
	// Checked: sets were compared.
	Checked(origin Origin, r Report)
	// AnswersChecked: answers were compared.
	AnswersChecked(r Report)
	// Repaired: so many refills were enqueued, and so many left for later because
	// there were too many at once.
	Repaired(enqueued, deferred int)
	// SampleDropped: a read was to be checked, and too many waited already.
	SampleDropped()
	// SweepMoved: the sweep of this process is there now.
	SweepMoved(p Progress)
	// RedisLost: Redis lost data, or may have.
	RedisLost(l Loss)
}

// Progress is where a sweep is.
type Progress struct {
	Held        bool // this process sweeps; otherwise nothing else is known
	Began       time.Time
	Hurried     bool  // as fast as the servers bear it
	Done, Total int64 // members; Total is a count from the beginning of the round
	// Ended and Took are of the last round that was finished; zero: none yet.
	Ended time.Time
	Took  time.Duration
}

// Unobserved is an [Observer] that does nothing.
type Unobserved struct{}

// Checked implements [Observer].
func (Unobserved) Checked(Origin, Report) {}

// AnswersChecked implements [Observer].
func (Unobserved) AnswersChecked(Report) {}

// Repaired implements [Observer].
func (Unobserved) Repaired(int, int) {}

// SampleDropped implements [Observer].
func (Unobserved) SampleDropped() {}

// SweepMoved implements [Observer].
func (Unobserved) SweepMoved(Progress) {}

// RedisLost implements [Observer].
func (Unobserved) RedisLost(Loss) {}
