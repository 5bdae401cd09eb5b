package demo

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// FanOuts are the latest fan-outs and the largest. Its zero value has none; it is safe for concurrent use.
type FanOuts struct {
	mu      sync.Mutex // guards all below
	last    []fanOut   // oldest first
	largest fanOut
}

// fanOut is an upload that was written to the sets of the uploader's followers.
type fanOut struct {
	unix uint64 // of its end
	of   member.ID
	sets int
	took time.Duration // since the upload
}

const maxFanOuts = 5

// Add implements [tasks.FanOuts].
func (f *FanOuts) Add(of member.ID, sets int, took time.Duration) {
	if sets == 0 { // there are no followers
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := fanOut{unix: uint64(time.Now().Unix()), of: of, sets: sets, took: took}
	f.last = latest(f.last, now, maxFanOuts)
	if sets >= f.largest.sets {
		f.largest = now
	}
}

// latest returns the latest fan-outs, newest first, and the largest, if there are any.
func (f *FanOuts) latest() (list []fanOut, largest fanOut) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list = slices.Clone(f.last)
	slices.Reverse(list)
	return list, f.largest
}

// workView is what goes on behind the answers.
type workView struct {
	FanOuts []fanOutView
	Largest fanOutView
	Queue   string
	Audit   string // "": there is none
	Wrong   bool   // the audit found something
}

type fanOutView struct {
	Key             string
	Name            string // of the uploader
	Sets, Took, Ago string
}

// queueTimeout bounds the look at the queue, which a page waits for.
const queueTimeout = time.Second

func (d *Demo) workView(ctx context.Context) workView {
	var view workView
	if d.cfg.FanOuts != nil {
		list, largest := d.cfg.FanOuts.latest()
		for _, f := range list {
			view.FanOuts = append(view.FanOuts, d.fanOutView(f))
		}
		view.Largest = d.fanOutView(largest)
	}
	if d.cfg.Queue != nil {
		view.Queue = "cannot be asked now"
		ctx, cancel := context.WithTimeout(ctx, queueTimeout)
		defer cancel()
		if stats, err := d.cfg.Queue(ctx); err == nil {
			view.Queue = queueText(stats)
		}
	}
	if d.cfg.Audit != nil {
		wrong, looked := d.cfg.Audit()
		view.Audit, view.Wrong = fmt.Sprintf("%s wrong of %s", thousands(wrong), thousands(looked)), wrong > 0
		if looked > 0 {
			view.Audit += " (" + percent(float64(wrong)/float64(looked)) + ")"
		}
	}
	return view
}

// percent returns a share in percent, in two digits, such as "0.00005 %", which no line end divides.
func percent(share float64) string {
	rounded, _ := strconv.ParseFloat(fmt.Sprintf("%.2g", 100*share), 64) // of what was formatted
	return strconv.FormatFloat(rounded, 'f', -1, 64) + "\u00a0%"
}

func (d *Demo) fanOutView(f fanOut) fanOutView {
	sets := thousands(f.sets) + " sets"
	if f.sets == 1 {
		sets = "1 set"
	}
	return fanOutView{
		Key: fmt.Sprintf("%d/%d/%d", f.of, f.unix, f.took), Name: d.memory.name(f.of), Sets: sets, Took: milliseconds(f.took), Ago: ago(f.unix),
	}
}

// queueText says how many tasks are to be done now, and for how long the oldest is.
func queueText(s queue.Stats) string {
	n, oldest := 0, time.Duration(0)
	for _, t := range s.Tasks {
		if t.State == queue.Waiting || t.State == queue.Running {
			n += t.Count
		}
	}
	for _, q := range s.Queues {
		oldest = max(oldest, q.Due)
	}
	switch n {
	case 0:
		return "no task"
	case 1:
		return "1 task, " + milliseconds(oldest) + " old"
	}
	return fmt.Sprintf("%s tasks, the oldest %s old", thousands(n), milliseconds(oldest))
}
