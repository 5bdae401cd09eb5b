package contacts

import "github.com/activityd/activityd/internal/member"

// WithChunks returns a store whose walks use other sizes, so that small worlds
// make walks of many chunks.
func (m *MySQL) WithChunks(first, growth, perStatement int) *MySQL {
	return &MySQL{db: m.db, chunks: chunking{first: first, growth: growth, perStatement: perStatement}}
}

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
		"TopContacts":       topContacts([]member.ID{v.ID, owner}, 12),
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
