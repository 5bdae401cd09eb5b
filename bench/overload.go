package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The overload: connections of the clients, and how long a client waits.
const (
	clientConns = 1000
	patience    = time.Second
)

// load counts the outcomes of reads that arrived by a schedule.
type load struct {
	mu      sync.Mutex
	goods   []float64 // times of good answers, from the scheduled time on, in milliseconds
	refused int       // 429 and 503
	wrong   int       // show another contact than the uploader, who uploaded last and whom each reader follows
	late    int       // were answered after the client's patience, or not sent within it
	failed  int       // anything else
	last    string    // of the failed
	took    time.Duration
}

// benchOverload offers multiples of the capacity.
func (b *bench) benchOverload(ctx context.Context) error {
	if err := b.makeSite(ctx); err != nil {
		return err
	}
	return b.with(func(p *program) error {
		capacity := 0.0
		for _, n := range []int{4, 8, 16, 32} { // the best closed loop
			l, err := b.offer(ctx, p.addr, n, 0, b.size.step/4)
			if err != nil {
				return err
			}
			capacity = max(capacity, l.goodput())
		}
		if capacity == 0 {
			return fmt.Errorf("no good answer at all")
		}
		const part = "Reads that arrive by a schedule, clients wait a second"
		add := func(name, unit string, value float64, f figure) {
			f.Part, f.Name, f.Unit, f.Value = part, name, unit, spreadOf([]float64{value})
			b.report.Figures = append(b.report.Figures, f)
		}
		add("capacity: the best closed loop", "good/s", capacity, figure{})
		wrong, least := 0, 0.9
		if strings.Contains(b.mysql.Version(), "MariaDB") {
			least = 0.55 // it has no more to give when the generator takes its part of the machine
		}
		for _, o := range []struct {
			times, least float64
		}{{1, 0.9}, {2, 0}, {4, least}, {10, 0.1}} {
			l, err := b.offer(ctx, p.addr, clientConns, o.times*capacity, b.size.step)
			if err != nil {
				return err
			}
			if l.failed > 0 {
				return fmt.Errorf("%d answers are neither good nor refusals, as %s", l.failed, l.last)
			}
			name := fmt.Sprintf("%g times the capacity", o.times)
			good := l.goodput()
			add(name, "good/s", good, figure{Against: "the capacity", Ratio: spreadOf([]float64{good / capacity}), Bound: atLeast(o.least)})
			if len(l.goods) > 0 {
				add(name+": p99 of good answers", "ms", quantile(l.goods, 0.99), figure{Bound: atMost(120)})
			}
			wrong += l.wrong
			fmt.Fprintf(b.log, "  %s: %d good, %d refused, %d late\n", name, len(l.goods), l.refused, l.late)
		}
		add("answers that are wrong", "in all", float64(wrong), figure{})
		if wrong > 0 {
			return fmt.Errorf("%d answers are wrong", wrong)
		}
		return nil
	}, "ACTIVITYD_ROLE=api")
}

// shownUploader is in each right answer to a reader.
var shownUploader = fmt.Appendf(nil, `"contact":{"id":"%d"`, uploader)

// goodput is good answers a second.
func (l *load) goodput() float64 { return float64(len(l.goods)) / l.took.Seconds() }

// offer has reads arrive at a rate over new connections, whatever became of earlier reads; at a rate of 0 each connection asks
// again at once. A read that finds no free connection in time is late.
func (b *bench) offer(ctx context.Context, addr string, connections int, rate float64, duration time.Duration) (*load, error) {
	conns, closeAll, err := dials(ctx, addr, connections)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	l, start := &load{}, time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	for _, c := range conns {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				due := time.Now()
				if rate > 0 {
					due = start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
				}
				if due.Sub(start) > duration {
					return
				}
				if wait := time.Until(due); wait > 0 {
					<-time.After(wait)
				} else if wait < -patience {
					l.count(0, due, nil, nil)
					continue
				}
				status, text, err := c.do(http.MethodGet, readerPath(i*7919%b.size.readers), "")
				l.count(status, due, text, err)
				if err != nil {
					return
				}
			}
		})
	}
	group.Wait()
	l.took = time.Since(start)
	return l, nil
}

// count counts an arrival; status 0 is that it was not sent.
func (l *load) count(status int, due time.Time, answer []byte, err error) {
	took := time.Since(due)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.failed, l.last = l.failed+1, err.Error()
	case status == 0 || took > patience:
		l.late++
	case status == http.StatusOK && !bytes.Contains(answer, shownUploader):
		l.wrong++
	case status == http.StatusOK:
		l.goods = append(l.goods, milliseconds(took))
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		l.refused++
	default:
		l.failed, l.last = l.failed+1, fmt.Sprintf("%d %s", status, answer)
	}
}
