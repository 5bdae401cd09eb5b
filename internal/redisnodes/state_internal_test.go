package redisnodes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func aNode() *Node { return new(Nodes).node(&redis.Options{Addr: "a:1"}) }

// A node is behind until the tasks that waited for it have been tried again, which may be 30 s later.
func TestHowLongANodeIsBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failed       error
		outage, want time.Duration
	}{
		"away for a moment":      {ErrUnavailable, time.Second, 5125 * time.Millisecond},
		"away for a minute":      {ErrUnavailable, time.Minute, 12500 * time.Millisecond},
		"away for an hour":       {ErrUnavailable, time.Hour, 35 * time.Second},
		"full for an hour":       {ErrRefused, time.Hour, 35 * time.Second},
		"its data were deleted":  {ErrUnknown, time.Hour, 0},
		"it had other settings":  {ErrStamp, time.Hour, 0},
		"a first probe succeeds": {nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := aNode()
				n.probed(nil)
				if c.failed != nil {
					n.probed(c.failed)
				}
				<-time.After(c.outage)
				n.probed(nil)
				behind := time.Duration(0)
				for ; n.seen.Load().behind.After(time.Now()); behind += 125 * time.Millisecond {
					if got := n.probed(nil); got.Err != nil || !errors.Is(n.state(), ErrBehind) {
						t.Fatalf("after %v it is %+v", behind, got)
					}
					<-time.After(125 * time.Millisecond)
				}
				if got := n.probed(nil); n.state() != nil || behind != c.want {
					t.Errorf("behind for %v, then %+v; want %v", behind, got, c.want)
				}
			})
		})
	}
}

// Calls over connections that are there, maybe to a former server, keep no belief alive while the probes of the address time out.
func TestProbesThatHangWhileCallsSucceed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := aNode()
		n.probed(nil)
		for began := time.Now(); time.Since(began) < seenFor(); n.ReportResult(nil) {
			if err := n.state(); err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			<-time.After(probeEvery)
			n.probed(context.DeadlineExceeded)
		}
		if err := n.state(); !errors.Is(err, errStale) {
			t.Errorf("it is believed: %v", err)
		}
		if got := n.probed(nil); !errors.Is(n.state(), ErrBehind) {
			t.Errorf("tasks waited, and it is %+v", got)
		}
	})
}

// A probe that is cancelled says nothing of the node, and that is not that all is well.
func TestAFirstProbeThatIsCancelled(t *testing.T) {
	t.Parallel()
	n := aNode()
	if got := n.probed(context.Canceled); !errors.Is(got.Err, ErrUnavailable) || !errors.Is(got.Err, context.Canceled) {
		t.Errorf("before any probe: %+v", got)
	}
	n.probed(nil)
	if got := n.probed(context.Canceled); got.Err != nil {
		t.Errorf("after a probe: %+v", got)
	}
}

// A node on which a probe cannot write is not used for writes, whatever the reason is.
func TestAProbeThatCannotWriteIsRefused(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	odd := errors.New("of no known meaning")
	if err := refusal(t.Context(), odd); !errors.Is(err, ErrRefused) {
		t.Errorf("an odd error: %v", err)
	}
	if err := refusal(ended, odd); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
		t.Errorf("a probe that was cancelled: %v", err)
	}
}
