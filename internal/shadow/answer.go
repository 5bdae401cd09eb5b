package shadow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

// Answer is what a site's own code showed a viewer.
type Answer struct {
	Viewer contacts.Viewer
	Limit  int // of its photos
	Photos Photos
	Asked  time.Time // when the code was asked
	// Again is that of the verdict before, if the code was asked once more because of it.
	Again Again
}

// Result is what a [Verdict] says.
type Result string

// The results. [Different] has a [Difference].
const (
	Same      Result = "same"
	Different Result = "different"
	AskAgain  Result = "ask_again" // it is not known yet: ask the site's code again
	Unsettled Result = "unsettled" // it changed too often to be judged
)

// Verdict is what is known of an [Answer].
type Verdict struct {
	Result     Result
	Again      Again       // for the next Answer, with [AskAgain]
	Difference *Difference // with [Different]
}

// Again is what a verdict remembers of the answers so far: how many there were, when the code was asked for the last of them, in
// unix seconds, and what that and the one that was due had in them. Its zero value remembers nothing.
type Again struct {
	asked int
	at    int64
	both  string
}

// The bounds of an answer.
const (
	maxAsked = 5               // times that a viewer is asked for
	maxAge   = time.Minute     // of an answer: what changed since would be taken for a difference
	maxAhead = 5 * time.Second // of the site's clock
)

// ErrAgain is the error of a text that is no [Again].
var ErrAgain = errors.New("want what the answer before had in ask_again")

// ParseAgain reads what [Again.String] wrote.
func ParseAgain(text string) (Again, error) {
	parts := strings.Split(text, "-")
	if len(parts) != 3 {
		return Again{}, ErrAgain
	}
	n, err := strconv.Atoi(parts[0])
	at, late := strconv.ParseInt(parts[1], 10, 64)
	raw, bad := hex.DecodeString(parts[2])
	if err != nil || late != nil || bad != nil || n < 1 || n >= maxAsked || len(raw) != digestSize {
		return Again{}, ErrAgain
	}
	return Again{n, at, parts[2]}, nil
}

// String returns it as one word.
func (a Again) String() string { return fmt.Sprintf("%d-%d-%s", a.asked, a.at, a.both) }

const digestSize = 16

// digest is what two answers have in them.
func digest(theirs, due []uint64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d;%d", theirs, due))
	return hex.EncodeToString(sum[:digestSize])
}

var answers = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "activityd_shadow_answers_total", Help: "Answers of the site that were compared by POST /v1/shadow, by result: same, unsettled, or the class of the difference.",
}, []string{"result"})

func init() { // the known series begin with 0
	for _, r := range []Result{Same, Unsettled} {
		answers.WithLabelValues(string(r))
	}
	for _, c := range Classes() {
		answers.WithLabelValues(string(c))
	}
}

// Judge compares an answer that the site gave a moment ago. It cannot see the instant of that answer. So a difference is one only
// when it was seen twice, the site's answer and the one that is due both unchanged: each of the two was given between two of the
// other. An answer of no later second than the one before is no second one. One comparison runs at a time; while it does, the error is [recent.ErrBusy].
type Judge struct {
	comparer *Comparer
	place    chan struct{}
	now      func() time.Time
}

// NewJudge returns a judge.
func NewJudge(c *Comparer) *Judge {
	return &Judge{c, make(chan struct{}, 1), time.Now}
}

// Judge returns what is known of an answer. It fails with [contacts.ErrNoMember], with [recent.ErrBusy], and as
// [mysql.Translate] says.
func (j *Judge) Judge(ctx context.Context, a Answer) (Verdict, error) {
	select {
	case j.place <- struct{}{}:
		defer func() { <-j.place }()
	default:
		return Verdict{}, recent.ErrBusy
	}
	v, err := j.judge(ctx, a)
	switch {
	case err != nil || v.Result == AskAgain:
	case v.Result == Different:
		answers.WithLabelValues(string(v.Difference.Class)).Inc()
	default:
		answers.WithLabelValues(string(v.Result)).Inc()
	}
	return v, err
}

func (j *Judge) judge(ctx context.Context, a Answer) (Verdict, error) {
	c, err := j.comparer.compareAnswer(ctx, a.Viewer, a.Limit, a.Photos)
	if err != nil {
		return Verdict{}, err
	}
	if c.Difference == nil {
		return Verdict{Result: Same}, nil
	}
	again := Again{a.Again.asked + 1, a.Asked.Unix(), digest(a.Photos, c.due)}
	isRepeated := a.Again != (Again{}) && a.Asked.Unix() <= a.Again.at // it may be the answer before, sent twice
	age := j.now().Sub(a.Asked)
	switch {
	case !isRepeated && age <= maxAge && again.both == a.Again.both:
		return Verdict{Result: Different, Difference: c.Difference}, nil
	case again.asked >= maxAsked:
		return Verdict{Result: Unsettled}, nil
	case isRepeated:
		again.at, again.both = a.Again.at, a.Again.both
	}
	return Verdict{Result: AskAgain, Again: again}, nil
}

// CheckAsked returns an error unless an answer may have been given at that time.
func CheckAsked(asked, now time.Time) error {
	if ahead := asked.Sub(now); ahead > maxAhead {
		return fmt.Errorf("is %v from now: want when your code was asked, in unix seconds; the clocks may differ", ahead.Round(time.Second))
	}
	return nil
}
