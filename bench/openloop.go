package main

import (
	"bytes"
	"math"
	"time"
)

// offer is requests that arrive by a schedule, whatever became of those before them.
type offer struct {
	addr      string // host:port
	questions []question
	rate      float64 // arrivals a second, at random times; 0: each connection always has a request
	conns     int     // connections at most
	patience  time.Duration
	duration  time.Duration
	seed      uint64
	// together, if not 0, is how many arrive within the first slot in place of the schedule. What is not
	// answered is asked again, as a widget does, until all are answered or duration ends.
	together int
	// stop, if not nil, ends the schedule when it is closed, as duration does.
	stop <-chan struct{}
}

// question is a request, with what is known of the answer.
type question struct {
	request []byte
	want    []byte // the body of a good answer begins with it
	tag     []byte // in the header of the answer 304, which is good as well; nil: there is none
}

// offered is what became of a load. Each arrival is counted once more, in one of good to broken, unless it comes together with others.
type offered struct {
	arrivals int
	sent     int // requests that were written, whatever was answered

	good    int // status 200, and as known to be true, within the patience; or 304
	refused int // 429, and 503 with Retry-After
	failed  int // other statuses
	wrong   int // 200, but not what is true
	late    int // given up after they were sent
	unsent  int // given up before: all connections were in use
	broken  int // the connection ended instead
	retries int // of those that came together

	unchanged int // of the good ones 304

	goods, refusals times // from the scheduled time
	took, own       time.Duration
	last            time.Duration // when the last good answer came
	lag             time.Duration // the longest time by which an arrival was handled late
	slots           []slot
	sample          string // of answers that are wrong or failed
	patience        time.Duration
}

// slot is what happened within slotTime. A request counts when it is answered.
type slot struct{ arrivals, good, refused int }

const slotTime = 100 * time.Millisecond

func newOffered(l offer) *offered {
	return &offered{patience: l.patience, slots: make([]slot, 1+(l.duration+2*l.patience)/slotTime)}
}

func (o *offered) slot(at time.Duration) *slot {
	return &o.slots[min(int(at/slotTime), len(o.slots)-1)]
}

func (o *offered) arrived(at time.Duration) {
	o.arrivals++
	o.slot(at).arrivals++
}

var retryHeader = []byte("\r\nRetry-After: ")

// judge counts an answer, with its header, and reports whether it is good.
func (o *offered) judge(q *question, answer []byte, at, now time.Duration) bool {
	_, body, whole := bytes.Cut(answer, []byte("\r\n\r\n"))
	status := ""
	if len(answer) > 12 {
		status = string(answer[9:12])
	}
	switch {
	case now-at >= o.patience:
		o.late++
	case status == "200" && whole && bytes.HasPrefix(body, q.want), status == "304" && q.tag != nil && bytes.Contains(answer, q.tag):
		if o.good++; status == "304" {
			o.unchanged++
		}
		o.slot(now).good++
		o.goods.add(now - at)
		o.last = now
		return true
	case status == "200", status == "304":
		o.wrong++
		o.sample = string(answer)
	case status == "429", status == "503" && bytes.Contains(answer, retryHeader):
		o.refused++
		o.slot(now).refused++
		o.refusals.add(now - at)
	default:
		o.failed++
		o.sample = string(answer)
	}
	return false
}

// goodput is good answers a second.
func (o *offered) goodput() float64 { return float64(o.good) / o.took.Seconds() }

// times counts times in classes a fiftieth apart.
type times struct {
	counts [1100]int32
	n      int
}

const timesBase = 1.02

func (t *times) add(d time.Duration) {
	class := math.Log(max(1, float64(d)/float64(time.Microsecond))) / math.Log(timesBase)
	t.counts[min(int(class), len(t.counts)-1)]++
	t.n++
}

// quantile returns the upper end of the class of the q-th quantile, 0 of no times.
func (t *times) quantile(q float64) time.Duration {
	left := int(math.Ceil(q * float64(t.n)))
	for class, n := range t.counts {
		if left -= int(n); left <= 0 && t.n > 0 {
			return time.Duration(math.Pow(timesBase, float64(class+1)) * float64(time.Microsecond))
		}
	}
	return 0
}
