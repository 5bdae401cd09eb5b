package index

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Epoch tells whether what Redis holds now is what it held before and what came
// since: for work that takes long and is of no use if a part of it gets lost.
type Epoch struct {
	// Token is random, and gone when the sets are: after a FLUSHALL, a restart
	// without persistence, or [Index.Reset]. Empty: there is none.
	Token string `json:"token"`
	// Marks are what [Index.Tick] raises. A Redis that comes back with older data
	// keeps its token, but has lower marks.
	Marks []int64 `json:"marks,omitempty"`
}

// Continues reports whether nothing is known to be lost since before.
func (e Epoch) Continues(before Epoch) bool {
	if before.Token != "" && e.Token != before.Token {
		return false
	}
	for i := range min(len(e.Marks), len(before.Marks)) {
		if e.Marks[i] < before.Marks[i] {
			return false
		}
	}
	return true
}

// Epoch returns how it is now. It has no effect.
func (ix *Index) Epoch(ctx context.Context) (Epoch, error) {
	pipe := ix.client.Pipeline()
	token := getText(ctx, pipe, epochKey)
	var marks []*redis.StringCmd
	for _, key := range ix.markKeys() {
		marks = append(marks, getText(ctx, pipe, key))
	}
	exec(ctx, pipe)
	text, err := token.Result()
	e := Epoch{Token: text}
	for _, mark := range marks {
		text, wrong := mark.Result()
		n, _ := strconv.ParseInt(text, 10, 64) // what is no number, or missing, is below any
		e.Marks = append(e.Marks, n)
		err = errors.Join(err, wrong)
	}
	return e, translate(ctx, "read the epoch", err)
}

// BeginEpoch makes sure that there is a token, and returns how it is then.
func (ix *Index) BeginEpoch(ctx context.Context) (Epoch, error) {
	e, err := ix.Epoch(ctx)
	if err != nil || e.Token != "" {
		return e, err
	}
	if err := ix.client.SetNX(ctx, epochKey, rand.Text(), 0).Err(); err != nil {
		return Epoch{}, translate(ctx, "begin an epoch", err)
	}
	return ix.Epoch(ctx)
}

// Materialize returns whose sets are kept, as [Index.StoreMaterialize] stored it; ""
// when nothing is stored.
func (ix *Index) Materialize(ctx context.Context) (string, error) {
	text, err := getText(ctx, ix.client, materializeKey).Result()
	return text, translate(ctx, "read whose sets are kept", err)
}

// StoreMaterialize stores in a word whose sets are kept, for other commands to compare,
// whatever was stored before.
func (ix *Index) StoreMaterialize(ctx context.Context, kept string) error {
	return translate(ctx, "store whose sets are kept", ix.client.Set(ctx, materializeKey, kept, 0).Err())
}

// KeepMaterialize stores it where nothing is stored, as after Redis was emptied.
func (ix *Index) KeepMaterialize(ctx context.Context, kept string) error {
	return translate(ctx, "store whose sets are kept", ix.client.SetNX(ctx, materializeKey, kept, 0).Err())
}
