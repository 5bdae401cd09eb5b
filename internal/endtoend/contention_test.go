package endtoend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// TestContention: a few viewers and uploaders only, all of them busy, in many
// short rounds with a look at the sets after each: what one update does to the
// other is not mended by a third before it is seen. In each round one of the
// sets gets lost.
func TestContention(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, newGround(t, 4), seed, 0)
	tn.warm(t, tn.viewers())
	a, b := tn.startedHesitant(t, "a"), tn.startedHesitant(t, "b")
	for round := range uint64(20) {
		lost := fmt.Sprint("user_", 1+round%4)
		must(t, tn.client.Del(t.Context(), lost).Err())
		group, ctx := errgroup.WithContext(t.Context())
		for i := range uint64(8) {
			rnd := rand.New(rand.NewPCG(seed, 1000*(round+1)+i))
			busy := &busybody{site: tn.site, rnd: rnd, uploader: member.ID(10 + i), date: start + 10*round}
			group.Go(func() error { return busy.act(ctx) })
		}
		must(t, group.Wait())
		tn.awaitIdle(t)
		tn.checkSets(t)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	tn.check(t, a.reader)
	tn.check(t, b.reader)
}

// busybody makes changes that get in each other's way.
type busybody struct {
	site     *site.MySQL
	rnd      *rand.Rand
	uploader member.ID
	date     uint64 // unix seconds, of the round
}

func (b *busybody) act(ctx context.Context) error {
	for range 5 {
		if err := b.change(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *busybody) change(ctx context.Context) error {
	viewer := member.ID(1 + b.rnd.IntN(4))
	switch b.rnd.IntN(4) {
	case 0: // out and in again
		if err := b.site.RemoveContact(ctx, viewer, b.uploader); err != nil {
			return err
		}
		hesitate(ctx)
		return b.site.SetContact(ctx, viewer, b.uploader, site.Grant{})
	case 1:
		return b.site.RemoveContact(ctx, viewer, b.uploader)
	case 2: // somebody who uploaded long ago tells of a photo of even longer ago
		return b.upload(ctx, member.ID(20+b.rnd.IntN(15)), start-200)
	}
	if err := b.upload(ctx, b.uploader, b.date); err != nil { // two, one after the other
		return err
	}
	hesitate(ctx) // until the first is perhaps being told
	b.date++
	return b.upload(ctx, b.uploader, b.date)
}

func (b *busybody) upload(ctx context.Context, owner member.ID, date uint64) error {
	_, err := b.site.Upload(ctx, site.Photo{Owner: owner, Visibility: contacts.Public, DateUpload: date})
	return err
}
