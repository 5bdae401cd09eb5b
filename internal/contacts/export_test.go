package contacts

import (
	"time"

	"github.com/activityd/activityd/internal/member"
)

// WithChunks returns a store whose walks use other sizes, so that small worlds
// make walks of many chunks.
func (m *MySQL) WithChunks(first, growth, perStatement int) *MySQL {
	return &MySQL{db: m.db, prepared: m.prepared, chunks: chunking{first: first, growth: growth, perStatement: perStatement}}
}

// WithPause returns a store over the same pool that tries to prepare statements
// again so long after the server refused.
func (m *MySQL) WithPause(d time.Duration) *MySQL {
	return &MySQL{db: m.db, prepared: &prepared{db: m.db, pause: d}, chunks: m.chunks}
}

// Number is what numbers are scanned into.
type Number = number

// Statement is a query with its arguments, for EXPLAIN.
type Statement struct {
	Text string
	Args []any
}

// Statements returns every query that [MySQL] asks, by name.
func Statements(v Viewer, owner member.ID, owners []member.ID) map[string]Statement {
	pairs := make([]Pair, len(owners))
	for i, id := range owners {
		pairs[i] = Pair{User: v.ID, Contact: id}
	}
	after := Cursor{LastUpload: 1 << 40, ID: 1}
	all := map[string]statement{
		"LastUploads":       lastUploads(owners),
		"Existing":          existing(owners),
		"Newest":            newestOf(owners),
		"Relations":         relations(pairs),
		"ContactsByRecency": byRecency(v.ID, owners, after, 12),
		"TopContacts":       topContacts([]member.ID{v.ID, owner}),
		"FollowerPages":     followerPages([]FollowerPage{{Of: owner}, {Of: v.ID, After: 3}}, 100, fromFollowers),
		"FollowerPages/any": followerPages([]FollowerPage{{Of: owner}, {Of: v.ID, After: 3}}, 100, fromAnyContacts),
		"VisiblePhotos":     photosOf(v, owner, 10),
		"Standings":         standingsOf(v, owners),
		"Details":           detailsOf(v, owners),
	}
	exported := make(map[string]Statement, len(all))
	for name, st := range all {
		exported[name] = Statement{Text: st.text, Args: st.args}
	}
	return exported
}
