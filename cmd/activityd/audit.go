package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/pace"
	"github.com/activityd/activityd/internal/recent"
)

func (c *config) auditFlags(f *pflag.FlagSet) {
	f.Float64Var(&c.auditShare, "audit-share", 0.001, "share of the reads that are compared with MySQL, off their path, 0 to 1; 0: none")
	f.IntVar(&c.auditSweepRate, "audit-sweep-rate", 50, "sets that the sweep over all sets compares with MySQL in a second, in one of the processes with workers; 0: no sweep")
	f.BoolVar(&c.auditRepair, "audit-repair", true, "refill the sets in which the audit finds something that no task will mend")
}

// newAuditor returns who compares the sets of the service with MySQL.
func (s *service) newAuditor() *audit.Auditor {
	reads := s.config.readerOptions(s.index.Settings())
	reads.Walks = 1 // one after the other is soon enough
	reads.Uncounted = true
	return audit.New(audit.Options{
		Sets: s.index, Truth: s.store, Tasks: s.queue,
		Reader:     recent.NewReader(s.index, s.store, noHints{}, reads),
		ActiveOnly: s.config.materialize == materializeActive,
	})
}

// noHints is for reads that are to find out how things are.
type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// newPatrol returns the audit of this process. Reads are sampled where they are
// answered. The sweep belongs to the processes with workers: those that answer
// requests have better things to do.
func (s *service) newPatrol() *audit.Patrol {
	o := audit.PatrolOptions{
		Auditor: s.newAuditor(), Members: s.store, Ledger: s.index, Pace: s.pacer,
		Repair: s.config.auditRepair, Log: s.log,
	}
	if s.config.role != roleWorkers {
		o.Share = s.config.auditShare
	}
	if s.config.role != roleAPI {
		o.Rate, o.Watch = s.config.auditSweepRate, true
	}
	return audit.NewPatrol(o)
}

// newPacer returns what slows the audit down when the servers are slow.
func (s *service) newPacer() *pace.Pacer {
	return pace.New(pace.Options{Probes: []pace.Probe{
		{Name: "MySQL", Ask: func(ctx context.Context) error {
			_, err := s.store.Existing(ctx, []member.ID{1})
			return err
		}},
		{Name: "Redis", Ask: s.index.Check, Floor: redisFloor},
	}, Interval: time.Second, Changed: s.tellPace})
}

// tellPace tells that the audit stops, slows down or goes on.
func (s *service) tellPace(now pace.State) {
	level := slog.LevelInfo
	if now.Mode == pace.Stopped {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "the pace of the audit changed", "now", now.String())
}

// patrolling audits until ctx ends.
func (s *service) patrolling(ctx context.Context) error {
	if s.config.auditShare == 0 && s.config.auditSweepRate == 0 {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.pacer.Run(ctx) })
	group.Go(func() error { return s.patrol.Run(ctx) })
	return group.Wait()
}

// noted is a reader that tells somebody for whom it read.
type noted struct {
	api.Reader
	note func(viewer member.ID)
}

// Read implements [api.Reader].
func (n noted) Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	a, err := n.Reader.Read(ctx, v, limit)
	if err == nil {
		n.note(v.ID)
	}
	return a, err
}
