package main

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// The sweep mends a set whose score is too low, and that no member reads.
func TestTheSweepMendsWhatNobodyReads(t *testing.T) {
	t.Parallel()
	r := startAllWith(t, func(c *config) { c.auditSweepRate = 1000 })
	r.makeSite(t, 3)
	for contact := uint64(101); contact <= 103; contact++ {
		_, err := r.db.ExecContext(t.Context(), "INSERT INTO contacts (user_id, contact_id) VALUES (1, ?)", contact)
		must(t, err)
		must(t, r.client.ZAdd(t.Context(), "user_1", redis.Z{Score: float64(1000 * contact), Member: fmt.Sprint(contact)}).Err())
	}
	must(t, r.client.ZAdd(t.Context(), "user_1", redis.Z{Score: 7, Member: "103"}).Err())
	eventually(t, "the set is mended", func() bool { return r.client.ZScore(t.Context(), "user_1", "103").Val() == 103000 })
}
