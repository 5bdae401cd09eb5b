package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/settings"
)

// auditConfig is the part about the audit.
type auditConfig struct{ auditSweepRate int }

// auditShare is the share of the reads that are compared with MySQL, off their path. A comparison costs about a walk, so the audit
// costs MySQL little at any rate of reads.
const auditShare = 0.001

func (c *auditConfig) auditFlags(f *pflag.FlagSet) {
	f.Var(settings.NewNumber(&c.auditSweepRate, 50, 0, 100_000, "sets/s"), "audit-sweep-rate",
		"how fast the audit goes through all sets and compares them with MySQL, in one process with workers at a time; 0: not at all")
	settings.NoFlag(f, "audit-sweep-rate")
}

// newPatrol returns the audit. A process with an API samples its reads; processes with workers share the sweep.
func (s *service) newPatrol() *check.Patrol {
	o := check.PatrolOptions{Checker: s.checker(), LostAt: s.index.LostAt, Log: s.log}
	if s.config.role != roleWorkers {
		o.Share = auditShare
	}
	if s.config.role != roleAPI {
		o.Rate = s.config.auditSweepRate
		o.Build = o.Rate > 0 && s.config.materialize == materializeAll
	}
	return check.NewPatrol(o)
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
