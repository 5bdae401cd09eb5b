package endtoend_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
)

// uploader is a contact who ever uploaded, as MySQL knows it now.
type uploader struct {
	id     string
	last   uint64 // unix seconds of the last upload
	newest uint64 // unix seconds of the newest photo that is still there and not private; 0: none
}

// uploaders returns, for every member, the contacts who ever uploaded.
func (g *ground) uploaders(t *testing.T) map[string][]uploader {
	t.Helper()
	rows, err := g.db.QueryContext(t.Context(), `
SELECT c.user_id, c.contact_id, u.last_upload, COALESCE(n.newest, 0)
FROM contacts c JOIN users u ON u.id = c.contact_id
LEFT JOIN (SELECT owner_id, MAX(date_upload) AS newest FROM photos WHERE visibility <> 'private' GROUP BY owner_id) n ON n.owner_id = u.id
WHERE u.last_upload > 0`)
	must(t, err)
	defer func() { _ = rows.Close() }()
	all := map[string][]uploader{}
	for rows.Next() {
		var user string
		var up uploader
		must(t, rows.Scan(&user, &up.id, &up.last, &up.newest))
		all[user] = append(all[user], up)
	}
	must(t, rows.Err())
	return all
}

// sets reads every stored set, lowest score first, by the name of its user.
func (g *ground) sets(t *testing.T) map[string][]redis.Z {
	t.Helper()
	keys, err := g.client.Keys(t.Context(), "user_*").Result()
	must(t, err)
	found := map[string]*redis.ZSliceCmd{}
	_, err = g.client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			found[strings.TrimPrefix(key, "user_")] = pipe.ZRangeWithScores(t.Context(), key, 0, -1)
		}
		return nil
	})
	must(t, err)
	sets := map[string][]redis.Z{}
	for user, set := range found {
		sets[user] = set.Val()
	}
	return sets
}

// checkSets compares every stored set with I1 to I3, and returns the number of sets. A task that breaks I4
// makes a set from its own news alone. The set lacks the other contacts and so fails I1 or I3.
func (g *ground) checkSets(t *testing.T) int {
	t.Helper()
	sets, truth := g.sets(t), g.uploaders(t)
	var violations []string
	for user, set := range sets {
		for _, v := range g.violations(set, truth[user]) {
			violations = append(violations, fmt.Sprintf("%s\n  the set of %s: %v", v, user, set))
		}
	}
	slices.Sort(violations)
	for _, v := range violations[:min(10, len(violations))] {
		t.Error(v)
	}
	if n := len(violations); n > 10 {
		t.Errorf("and %d violations more", n-10)
	}
	return len(sets)
}

func (g *ground) violations(set []redis.Z, truth []uploader) (found []string) {
	if len(set) > g.settings.Max {
		found = append(found, fmt.Sprintf("I3: %d members, at most %d are allowed", len(set), g.settings.Max))
	}
	scores, low := map[string]uint64{}, uint64(set[0].Score)
	for _, z := range set {
		scores[fmt.Sprint(z.Member)] = uint64(z.Score)
	}
	for _, up := range truth {
		score, isMember := scores[up.id]
		switch {
		case !isMember && up.last > low:
			found = append(found, fmt.Sprintf("I1: %s uploaded at %d, which is above the lowest score, and is no member", up.id, up.last))
		case !isMember && len(set) < g.settings.Min:
			found = append(found, fmt.Sprintf("I3: %s uploaded at %d and is no member, though there are only %d", up.id, up.last, len(set)))
		case isMember && score < up.newest:
			found = append(found, fmt.Sprintf("I2: %s has score %d and a photo of %d", up.id, score, up.newest))
		case isMember && score < up.last:
			found = append(found, fmt.Sprintf("I2: %s has score %d and uploaded at %d", up.id, score, up.last))
		}
	}
	return found
}

// checkGuards makes sure that no update leaves a guard behind for good.
func (g *ground) checkGuards(t *testing.T) {
	t.Helper()
	keys, err := g.client.Keys(t.Context(), "guard_*").Result()
	must(t, err)
	for _, key := range keys {
		if life := g.client.TTL(t.Context(), key).Val(); life == -1 {
			t.Errorf("%s never expires", key)
		}
	}
}

// sources counts where answers came from.
type sources map[recent.Source]int

// checkAnswers holds the reader's answers against the definition in plain SQL.
// Nothing may change meanwhile.
func (g *ground) checkAnswers(t *testing.T, reader *recent.Reader, viewers []member.ID) sources {
	t.Helper()
	from := sources{}
	for i, id := range viewers {
		v, limit := contacts.Viewer{ID: id}, 1+i%12
		want, err := site.AskPlainly(t.Context(), g.db, site.ContactsFirst, v, limit)
		must(t, err)
		got, err := reader.Read(t.Context(), v, limit)
		if errors.Is(err, contacts.ErrNoMember) && g.isGone(t, id) {
			continue
		}
		if err != nil {
			t.Errorf("viewer %s: %v", id, err)
			continue
		}
		if diff := cmp.Diff(want, got.Album); diff != "" {
			t.Errorf("viewer %s: from %s (-plain SQL +answer):\n%s%+v", id, got.Source, diff, got.Trace)
		}
		from[got.Source]++
	}
	return from
}

func (g *ground) isGone(t *testing.T, id member.ID) bool {
	t.Helper()
	var n int
	must(t, g.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM users WHERE id = ?", uint64(id)).Scan(&n))
	return n == 0
}

// sample is everybody among the people, and some fans.
func (tn *town) sample() []member.ID {
	viewers := tn.viewers()
	sample := viewers[:people:people]
	for i := people; i < len(viewers); i += 1 + tn.fans/100 {
		sample = append(sample, viewers[i])
	}
	return sample
}

// check checks all invariants that hold when all tasks are done.
func (tn *town) check(t *testing.T, reader *recent.Reader) sources {
	t.Helper()
	if n := tn.checkSets(t); n == 0 {
		t.Error("there is not one set")
	}
	tn.checkGuards(t)
	return tn.checkAnswers(t, reader, tn.sample())
}
