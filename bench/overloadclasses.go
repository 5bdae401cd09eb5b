package main

import (
	"context"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// benchClasses measures what a read of each class takes, one after the other over HTTP: the processor
// time of activityd and its servers, and how long it is under way. How many cores it keeps busy says
// that a read of any class may be one of those that activityd's limiter bounds: a longer one has its place for
// longer.
func (s *suite) benchClasses(ctx context.Context) error {
	o, err := s.overloads(ctx)
	if err != nil {
		return err
	}
	if err := o.mix(ctx, allSets); err != nil {
		return err
	}
	t, err := o.target(ctx, ours, "--role=api") // sets that are missing stay so
	if err != nil {
		return err
	}
	var proven, compared []question
	reader := s.reader()
	for i, viewer := range o.viewers {
		a, err := reader.Read(ctx, contacts.Viewer{ID: viewer}, shown)
		if err != nil {
			return err
		}
		switch a.Trace.Proof {
		case recent.ByNext:
			proven = append(proven, o.questions[i])
		case recent.ByLowest, recent.ByAll:
			compared = append(compared, o.questions[i])
		}
	}
	list := []class{
		{"proven", proven, nil}, {"compared", compared, nil},
		{"walk, 10 to 100 contacts", o.questions, o.viewers},
	}
	for i, n := range s.options.site.Contacts[1:] {
		viewer := s.options.site.viewer(i + 1)
		q, err := s.question(ctx, viewer)
		if err != nil {
			return err
		}
		list = append(list, class{fmt.Sprintf("walk, %d contacts", n), []question{q}, []member.ID{viewer}})
	}
	return o.classes(ctx, t, list)
}

// class is reads of a class.
type class struct {
	name      string
	questions []question
	missing   []member.ID // the sets that are to be missing
}

// classes measures them one after the other.
func (o *overload) classes(ctx context.Context, t *target, list []class) error {
	const part = "A read of each class, one after the other"
	var proven float64
	for _, c := range list {
		if len(c.questions) == 0 {
			return fmt.Errorf("there is no read that is %s", c.name)
		}
		for _, viewer := range c.missing {
			if err := o.client.Del(ctx, index.UserKey(viewer)).Err(); err != nil {
				return err
			}
		}
		s, err := o.step(ctx, t, offer{questions: c.questions, conns: 1, duration: max(o.options.step/3, time.Second)}, nil)
		if err != nil {
			return err
		}
		if s.good == 0 || s.good < s.arrivals-1 {
			return fmt.Errorf("%s: %d of %d reads are good", c.name, s.good, s.arrivals)
		}
		micros := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(s.good) }
		row := func(what, unit string, value float64) {
			o.results.add(figure{Part: part, Name: c.name + ": " + what, Unit: unit, Value: spreadOf(value)})
		}
		row("processor time of activityd", "µs", micros(s.cpu.Program))
		row("of MySQL", "µs", micros(s.cpu.MySQL))
		row("of Redis", "µs", micros(s.cpu.Redis))
		row("time", "µs", float64(s.goods.quantile(0.5).Microseconds()))
		busy := s.servers().Seconds() / s.took.Seconds()
		if proven == 0 {
			proven = busy
		}
		row("cores that are busy while one is under way", "", busy)
		row("the same, in those of a proven one", "", busy/proven)
	}
	return nil
}
