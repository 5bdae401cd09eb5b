package main

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// startInjured starts a server and lowers a score. Only the audit would notice.
func startInjured(t *testing.T, auditShare float64, sweepRate int) *running {
	t.Helper()
	r := startAllWith(t, func(c *config) { c.auditShare, c.auditSweepRate = auditShare, sweepRate })
	r.makeSite(t, 3)
	for _, contact := range []string{"101", "102", "103"} {
		_, err := r.db.ExecContext(t.Context(), "INSERT INTO contacts (user_id, contact_id) VALUES (1, ?)", contact)
		must(t, err)
	}
	for _, contact := range []uint64{101, 102, 103} {
		score := redis.Z{Score: float64(1000 * contact), Member: fmt.Sprint(contact)}
		must(t, r.client.ZAdd(t.Context(), "user_1", score).Err())
	}
	must(t, r.client.ZAdd(t.Context(), "user_1", redis.Z{Score: 7, Member: "103"}).Err())
	return r
}

func (r *running) isMended(t *testing.T) bool {
	t.Helper()
	return r.client.ZScore(t.Context(), "user_1", "103").Val() == 103000
}

func TestTheSweepMendsWhatNobodyReads(t *testing.T) {
	t.Parallel()
	r := startInjured(t, 0, 1000)
	eventually(t, "the set is mended", func() bool { return r.isMended(t) })
}
