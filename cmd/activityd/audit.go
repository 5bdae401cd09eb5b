package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// auditShare is the share of the reads that are compared with MySQL, off their path:
// one comparison costs about a walk, so that the audit costs MySQL little at any rate
// of reads, and a thousand reads are soon made.
const auditShare = 0.001

func (c *config) auditFlags(f *pflag.FlagSet) {
	f.IntVar(&c.auditSweepRate, "audit-sweep-rate", 50, "sets a second that the audit compares with MySQL, in one process with workers; 0: none")
	c.auditShare = auditShare
}

// newAuditor returns an auditor of the sets of the service, which looks when the pacer
// lets it; nil: at once.
func (s *service) newAuditor(pacer *bulk.Pacer) *audit.Auditor {
	reads := s.config.readerOptions(s.index.Settings())
	reads.Walks = 1 // one after the other is soon enough
	reads.Uncounted = true
	return audit.New(audit.Options{
		Sets: s.index, Truth: s.store, Tasks: s.queue,
		Reader:     recent.NewReader(s.index, s.store, noHints{}, reads),
		ActiveOnly: s.config.materialize == materializeActive,
		Pacer:      pacer,
	})
}

// noHints is for reads that change nothing.
type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// newPatrol returns the audit of this process. Reads are sampled where they are
// answered; the sweep belongs to the processes with workers.
func (s *service) newPatrol() *audit.Patrol {
	o := audit.PatrolOptions{
		Auditor: s.newAuditor(s.pacer), Members: s.store, EachStored: s.index.EachStored, Ledger: s.ledger,
		Repair: true, Log: s.log,
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
func (s *service) newPacer() *bulk.Pacer {
	return bulk.NewPacer(bulk.PacerOptions{Probes: []bulk.Probe{
		{Name: "MySQL", Ask: bulk.ProbeMySQL(s.store)},
		{Name: "Redis", Ask: s.index.Check, Floor: bulk.RedisFloor},
	}, Interval: time.Second, Changed: s.tellPace})
}

// tellPace logs that the audit stops, slows down or goes on.
func (s *service) tellPace(now bulk.Pace) {
	level := slog.LevelInfo
	if now.Mode == bulk.Stopped {
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
	group.Go(func() error {
		s.pacer.Run(ctx)
		return nil
	})
	group.Go(func() error { return s.patrol.Run(ctx) })
	return group.Wait()
}

// noted is a reader that calls note after each read.
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
