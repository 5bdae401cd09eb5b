package index

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Generation identifies the data that Redis holds: two that are read one after the
// other show whether data was lost between them.
type Generation struct {
	// Token is random, and gone with the data: after a FLUSHALL, a restart without
	// persistence, or [Index.Reset]. Empty: there is none, or it was not read.
	Token string `json:"token"`
	// Marks are numbers that [Index.Probe] raises and nothing lowers. A
	// Redis that comes back with older data keeps its token but has lower marks.
	Marks []int64 `json:"marks,omitempty"`
}

// Rewound reports whether what was written before is gone, where before is an earlier
// generation or the zero one: the server was emptied, or came back with older data.
func (g Generation) Rewound(before Generation) bool {
	if before.Token != "" && g.Token != before.Token {
		return true
	}
	for i := range min(len(g.Marks), len(before.Marks)) {
		if g.Marks[i] < before.Marks[i] {
			return true
		}
	}
	return false
}

// Generation reads the token and the marks. It has no effect.
func (l *Ledger) Generation(ctx context.Context) (Generation, error) {
	pipe := l.client.Pipeline()
	token := getText(ctx, pipe, epochKey)
	var marks []*redis.StringCmd
	for _, key := range markKeys(l.client) {
		marks = append(marks, getText(ctx, pipe, key))
	}
	exec(ctx, pipe)
	g, err := Generation{Token: token.Val()}, token.Err()
	for _, mark := range marks {
		g.Marks = append(g.Marks, number(mark.Val())) // what is no number, or missing, is below any
		err = errors.Join(err, mark.Err())
	}
	return g, translate(ctx, "read the generation", err)
}

// BeginGeneration makes sure that there is a token, and returns the generation.
func (l *Ledger) BeginGeneration(ctx context.Context) (Generation, error) {
	g, err := l.Generation(ctx)
	if err != nil || g.Token != "" {
		return g, err
	}
	if err := l.client.SetNX(ctx, epochKey, rand.Text(), 0).Err(); err != nil {
		return Generation{}, translate(ctx, "begin a generation", err)
	}
	return l.Generation(ctx)
}
